"""What can go wrong, each with a class of its own and a sentence that explains it.

    CourseError
     ├── RankFailed    a rank raised an exception
     ├── RankDied      a rank's process ended without returning
     ├── Blocked       ranks wait
     │    ├── Deadlock    for one another, or for ranks that have returned: it can never end
     │    └── Hang        nothing came back within the timeout
     ├── Mismatch      ranks called operations that do not fit together
     ├── Hazard        a buffer was touched too early, or a Work was never waited for
     ├── NotStarted    this machine did not let the ranks start: nothing of the function has run
     └── CheckFailed   an exercise's check found a wrong answer, or none

Each message is complete by itself: what happened, on which rank, at which line of the reader's
own code, and what to do. Notebooks show the message and no frame of this library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from course_lib.trace import Line, Run


@dataclass(frozen=True, slots=True)
class Wait:
    """One rank that stands still: in which call, at which line, and whom it waits for."""

    rank: int
    call: str  # as a reader would write it: "recv(src=1)"
    line: Line | None
    on: tuple[int, ...] = ()  # who could free it; in a Deadlock, only those of them that will not
    group: str = ""


class CourseError(Exception):
    """The common parent: catch this to catch everything the course can say.

    ``run`` holds what was recorded before things went wrong (trace, output), or None. Each class
    names what else its errors know. Whoever makes an error gives that by keyword.
    """

    run: Run | None = None

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence, and none of the library's frames."""
        return f"{type(self).__name__}: {self}".splitlines()


class RankFailed(CourseError):
    """A rank raised. ``rank`` is the first in time; ``consequences`` fell over because of it.

    ``kind`` is the name of the exception's class. In a simulation, the exception itself is the
    ``__cause__``.
    """

    rank: int
    kind: str
    consequences: tuple[int, ...] = ()


class RankDied(CourseError):
    """A rank's process ended by itself. ``exit_code`` as in subprocess: −9 is SIGKILL."""

    rank: int
    exit_code: int
    consequences: tuple[int, ...] = ()


class Blocked(CourseError):
    """Parent of the two errors in which ranks wait; ``waits`` has one Wait per waiting rank."""

    waits: Sequence[Wait] = ()


class Deadlock(Blocked):
    """Ranks wait for one another or for ranks that have returned: it can never end.

    ``cycle`` lists ranks in waiting order, or is empty where the wait is for one that has returned.
    """

    cycle: tuple[int, ...] = ()


class Hang(Blocked):
    """Nothing came back within the timeout."""


class Mismatch(CourseError):
    """Two ranks called operations that do not fit together. ``ranks`` and ``lines`` name them.

    ``what`` is the property that differs: op, module, shape, splits, dtype, reduce op, root, peer,
    tag, group, stride or outputs. Where one rank has left a call out, the text says that, and
    ``what`` is only what differs first between two calls that were never meant for each other.
    """

    what: str
    ranks: tuple[int, ...] = ()
    lines: tuple[Line | None, ...] = ()


class Hazard(CourseError):
    """A buffer was touched while it was on its way, or a Work was never waited for.

    ``kind`` is "read before wait", "written before wait" or "never waited for".
    """

    kind: str
    rank: int
    line: Line | None = None


class NotStarted(CourseError):
    """The ranks did not come about, so no line of the function has run: the machine is to blame."""


class CheckFailed(CourseError):
    """An exercise is not right yet. ``verdict`` has the levels, the case and the hint."""

    verdict: object = None


class Interrupted(KeyboardInterrupt):
    """A call of this library was interrupted; a notebook shows that in one line."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


@contextmanager
def interruptible(what: str) -> Iterator[None]:
    """Around a block, or as a decorator: whoever stops it in a notebook reads a sentence, and so
    does whoever names an argument that it does not have."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"{what} was stopped, and its ranks have ended") from None
    except TypeError as error:
        if not str(error).startswith(f"{what} got an unexpected keyword argument"):
            raise
        by_position = f"{what[:-1]}fn, a, b) calls fn(a, b) in each rank"
        raise CourseError(f"{error}. What fn takes goes by position: {by_position}") from None


@dataclass
class Caught:
    """What an ``expect`` block caught: ``error`` is there once the block has ended."""

    error: CourseError | None = None


@contextmanager
def expect(kind: type[CourseError]) -> Iterator[Caught]:
    """For cells that break something on purpose: shows the error, and fails if none comes.

    >>> with expect(Deadlock) as caught:
    ...     run(both_receive_first)
    >>> draw.waits(caught.error)

    Raises:
        CourseError: the block ended without an error. Errors of other kinds pass through.
    """
    caught = Caught()
    try:
        yield caught
    except kind as error:
        caught.error = error
        print("\n".join(error._render_traceback_()))
    else:
        raise CourseError(f"this cell should have ended in {kind.__name__}, and nothing went wrong")
