"""RankFailed, RankDied: which of several failures was the root cause.

A RankOutcome says how one rank's part ended: whether it returned, raised, left or died, when, and
where. Reading only that, ``root_cause`` decides which failure was the first and which were
consequences.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from course_lib.diagnosis.lines import call_text, ranks_text
from course_lib.errors import CourseError, Deadlock, RankDied, RankFailed
from course_lib.pickling import LARGEST, TooLarge, pack, unpack, why
from course_lib.trace import Event, Line
from course_lib.user_code import line_at, stack_lines

# How torch and gloo complain when the other side of a connection has gone.
_LOST_PEER = re.compile(r"connection (closed|reset|refused)|broken pipe|gloo/transport", re.I)


@dataclass
class RankOutcome:
    """How one rank's part ended. ``state`` is returned, raised, left or died."""

    rank: int
    state: str
    at: float  # seconds, on a clock that all ranks share
    kind: str = ""  # class name of what it returned or raised
    message: str = ""
    lines: list[Line] = field(default_factory=list)  # the reader's lines, outermost first
    code: int = 0  # exit code, or minus the signal
    exception: BaseException | None = None
    last_call: Event | None = None  # of one that died: the call it stood in, or had made last
    last_words: str = ""  # of one that C++ ended
    # What only a rank with a process of its own sends:
    began: float = 0.0  # when its function did
    result: bytes = b""  # what it returned, pickled
    imports: Sequence[str] = ()  # modules that others will need, too

    @classmethod
    def of_exception(cls, rank: int, at: float, error: BaseException) -> Self:
        """That of a rank whose function ended in an exception, ``sys.exit()`` too."""
        # one that was raised in another process has brought its lines along
        lines = getattr(error, "__lines__", None) or stack_lines(error.__traceback__)
        if isinstance(error, SystemExit):
            code, said = error.code, ""
            if not isinstance(code, int):  # sys.exit("why") prints that, and stands for 1
                code, said = int(code is not None), str(code or "")
            return cls(rank, "left", at, lines=lines, code=code, last_words=said)
        return cls(rank, "raised", at, type(error).__name__, str(error), lines, exception=error)

    @classmethod
    def of_result(
        cls, rank: int, at: float, result: object, function: object, most: int = LARGEST
    ) -> Self:
        """That of a rank whose function has returned; a failure if its result cannot travel."""
        kind, code = type(result).__name__, getattr(function, "__code__", None)
        line = code and line_at(code.co_filename, code.co_firstlineno, code.co_name)
        try:
            return cls(rank, "returned", at, kind, result=pack(result, most))
        except TooLarge as error:
            said = f"returned {error}: return a summary of it (a shape, a norm, a slice)"
        except Exception as error:
            said = f"returned a {kind}, which cannot travel ({why(error)}): return plain data"
        return cls(rank, "raised", at, message=said, lines=[line] if line else [])

    def value(self) -> object:
        """What the function returned."""
        try:
            return unpack(self.result) if self.state == "returned" else None
        except Exception as error:
            message = f"rank {self.rank} returned a {self.kind}, which cannot be unpickled here"
            message = f"{message} ({why(error)}): return plain data"
            raise RankFailed(message, rank=self.rank, kind=self.kind) from error

    @property
    def ended_well(self) -> bool:
        """Whether it returned, or called ``sys.exit()`` as a script does at its end."""
        return self.state == "returned" or (self.state == "left" and self.code == 0)

    @property
    def lost_its_peer(self) -> bool:
        return self.state == "raised" and bool(_LOST_PEER.search(self.message))


# ---- ranks that fail -----------------------------------------------------------------------------


def root_cause(failures: Sequence[RankOutcome]) -> CourseError:
    """The error for these failures, one at least."""
    failed = sorted(failures, key=lambda s: (s.lost_its_peer, s.at))
    first = failed[0]
    same = [s for s in failed if _alike(s, first)]
    first = min(same, key=lambda s: s.rank)
    others = [s for s in failed if s not in same]
    if first.state == "raised":
        return _raised(first, [s.rank for s in same], others)
    return _died(first, others)


def who_left(error: CourseError, outcomes: Iterable[RankOutcome]) -> CourseError:
    """The same error; or the RankDied of a rank that called ``sys.exit()`` while others still
    wait for it in vain.
    """
    waits = error.waits if isinstance(error, Deadlock) else ()
    awaited = {rank for wait in waits for rank in wait.on}
    left = [o for o in outcomes if o.state == "left" and o.rank in awaited]
    if not left:
        return error
    victims = [wait for wait in waits if not {o.rank for o in left}.isdisjoint(wait.on)]
    text = [f"  rank {w.rank} waits for it in {w.call}   {w.line or ''}" for w in victims]
    return _died(min(left, key=lambda o: o.rank), [], text)


def _alike(a: RankOutcome, b: RankOutcome) -> bool:
    """Whether one sentence says it of both; ranks that died did so wherever they were."""
    same = (a.state, a.kind, a.code) == (b.state, b.kind, b.code)
    return same and (a.state == "died" or a.lines == b.lines)


def _consequences(others: Sequence[RankOutcome]) -> Iterator[str]:
    """Whoever lost a peer fell because of that; an error of one's own may be another story."""
    for lost, what in ((True, "fell over because of it."), (False, "failed, too.")):
        if those := [s.rank for s in others if s.lost_its_peer is lost]:
            yield f"{ranks_text(those)} {what}"


# What torch says, and what helps.
_CURES = {
    "is not part of group": "src and dst are global ranks: where you mean a rank's number within "
    "the group, say group_src= or group_dst=.",
    "got mixed torch.Tensor and DTensor": "After parallelize_module: call the module, which "
    "converts its input, or say how x lies: DTensor.from_local(x, mesh, [Replicate()]). After "
    "fully_shard: call model(x), not model.forward(x), which gathers no parameters.",
    "Could not run 'c10d::": "This call takes no such tensor: give it a plain one, as x.to_dense() "
    "or x.dequantize() make.",
}


def _raised(first: RankOutcome, same: Sequence[int], others: Sequence[RankOutcome]) -> RankFailed:
    words = f"raised {first.kind}" if first.kind else ""  # without one, the message says it all
    # the rest of what torch says then is a list of its backends
    message = first.message.split(". This could be because the operator doesn't exist")[0]
    what = ": ".join(filter(None, [words, message]))
    lines = [f"{ranks_text(same)} {what}", *(f"  {line}" for line in first.lines)]
    lines += [cure for said, cure in _CURES.items() if said in message]
    lines += _consequences(others)
    fell, text = tuple(s.rank for s in others), "\n".join(lines)
    error = RankFailed(text, rank=first.rank, kind=first.kind, consequences=fell)
    error.__cause__ = first.exception
    error.__suppress_context__ = True
    return error


def _died(first: RankOutcome, others: Sequence[RankOutcome], waits: Sequence[str] = ()) -> RankDied:
    manner, advice = _end(first)
    lines = [f"rank {first.rank} {manner}"]
    event = first.last_call
    if first.lines:
        lines.append(f"  it was at {first.lines[-1]}")
    elif event is not None:
        lines.append(f"  the last thing it did: {call_text(event)}   {event.line or ''}")
    lines += [f"  it said: {' '.join(first.last_words.split())}"] if first.last_words else []
    lines += [*waits, *_consequences(others), advice]
    fell = tuple(s.rank for s in others)
    return RankDied("\n".join(lines), rank=first.rank, exit_code=first.code, consequences=fell)


_UNDER_DETAIL = (
    "TORCH_DISTRIBUTED_DEBUG=DETAIL is set, under which torch 2.15 crashes where it wraps a model "
    "in DistributedDataParallel: set it to INFO."
)
_TOO_EARLY = "A rank must not end before the others have what they need from it."
_ADVICE = {
    "SIGKILL": "SIGKILL comes from outside: most often the system was out of memory.",
    "SIGSEGV": "A segmentation fault comes from compiled code: look at the line above.",
    "SIGABRT": "An abort comes from compiled code that found its state broken.",
    "SIGTERM": "Somebody asked it to end.",
}


def _end(outcome: RankOutcome) -> tuple[str, str]:
    """How it ended, and what may help."""
    code, left = outcome.code, outcome.state == "left"
    if left or code >= 0:
        how = f"it called sys.exit({code})" if left else f"its process ended with exit code {code}"
        return f"left early: {how}.", _TOO_EARLY
    name = {int(known): known.name for known in signal.Signals}.get(-code, "")
    manner = f"was killed by {name} (signal {-code})." if name else f"was killed by signal {-code}."
    detail = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL"
    if name == "SIGSEGV" and detail:
        return manner, _UNDER_DETAIL
    return manner, _ADVICE.get(name, "A signal ended it before its work was done.")
