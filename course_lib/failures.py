"""Which failure was the root cause: what both engines say when ranks fail or stand still.

An Outcome says how one rank's part ended: whether it returned, raised, left or died, when, and
where. Reading only that, ``root_cause`` decides which failure was the first and which were
consequences. ``deadlock_error`` says of ranks that wait in vain what keeps them.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from course_lib import explain
from course_lib.errors import CourseError, RankDied, RankFailed, Wait
from course_lib.trace import Event, Line
from course_lib.user_code import stack_lines

# How torch and gloo complain when the other side of a connection has gone.
_LOST_PEER = re.compile(r"connection (closed|reset|refused)|broken pipe|gloo/transport", re.I)


@dataclass
class Outcome:
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
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            return cls(rank, "left", at, lines=lines, code=code)
        return cls(rank, "raised", at, type(error).__name__, str(error), lines, exception=error)

    @property
    def lost_its_peer(self) -> bool:
        return self.state == "raised" and bool(_LOST_PEER.search(self.message))


# ---- ranks that fail -----------------------------------------------------------------------------


def root_cause(failures: Sequence[Outcome]) -> CourseError:
    """The error for these failures, one at least."""
    failed = sorted(failures, key=lambda s: (s.lost_its_peer, s.at))
    first = failed[0]
    same = [s for s in failed if _alike(s, first)]
    first = min(same, key=lambda s: s.rank)
    others = [s for s in failed if s not in same]
    if first.state == "raised":
        return _raised(first, [s.rank for s in same], others)
    return _died(first, others)


def _alike(a: Outcome, b: Outcome) -> bool:
    """Whether one sentence says it of both; ranks that died did so wherever they were."""
    same = (a.state, a.kind, a.code) == (b.state, b.kind, b.code)
    return same and (a.state == "died" or a.lines == b.lines)


def _consequences(others: Sequence[Outcome]) -> Iterator[str]:
    """Whoever lost a peer fell because of that; an error of one's own may be another story."""
    for lost, what in ((True, "fell over because of it."), (False, "failed, too.")):
        if those := [s.rank for s in others if s.lost_its_peer is lost]:
            yield f"{explain.ranks_text(those)} {what}"


def _raised(first: Outcome, same: Sequence[int], others: Sequence[Outcome]) -> RankFailed:
    words = f"raised {first.kind}" if first.kind else ""  # without one, the message says it all
    what = ": ".join(filter(None, [words, first.message]))
    lines = [f"{explain.ranks_text(same)} {what}", *(f"  {line}" for line in first.lines)]
    lines += _consequences(others)
    error = RankFailed("\n".join(lines), rank=first.rank, kind=first.kind,
                       consequences=tuple(s.rank for s in others))  # fmt: skip
    error.__cause__ = first.exception
    error.__suppress_context__ = True
    return error


def _died(first: Outcome, others: Sequence[Outcome]) -> RankDied:
    manner, advice = _end(first)
    lines = [f"rank {first.rank} {manner}"]
    event = first.last_call
    if first.lines:
        lines.append(f"  it was at {first.lines[-1]}")
    elif event is not None:
        lines.append(f"  the last thing it did: {explain.call_text(event)}   {event.line or ''}")
    lines += [f"  it said: {' '.join(first.last_words.split())}"] if first.last_words else []
    lines += [*_consequences(others), advice]
    fell = tuple(s.rank for s in others)
    return RankDied("\n".join(lines), rank=first.rank, exit_code=first.code, consequences=fell)


_ADVICE = {
    "SIGKILL": "SIGKILL comes from outside: most often the system was out of memory.",
    "SIGSEGV": "A segmentation fault comes from compiled code: look at the line above.",
    "SIGABRT": "An abort comes from compiled code that found its state broken.",
    "SIGTERM": "Somebody asked it to end.",
}


def _end(outcome: Outcome) -> tuple[str, str]:
    """How it ended, and what may help."""
    code, left = outcome.code, outcome.state == "left"
    if left or code >= 0:
        how = f"it called sys.exit({code})" if left else f"its process ended with exit code {code}"
        advice = "A rank has to return from the function: the others may still need it."
        return f"left early: {how}.", advice
    name = {int(known): known.name for known in signal.Signals}.get(-code, "")
    manner = f"was killed by {name} (signal {-code})." if name else f"was killed by signal {-code}."
    return manner, _ADVICE.get(name, "A signal ended it before the function returned.")


# ---- ranks that wait in vain ---------------------------------------------------------------


def deadlock_error(
    blocked: Mapping[int, Event],
    lines: Mapping[int, Line | None],
    on: Mapping[int, tuple[int, ...]],
    returned: Collection[int],
    groups: Mapping[str, tuple[int, ...]],
    advice: str = "",
    calls: Callable[[str], Mapping[int, Sequence[Event]]] = lambda group: {},
) -> CourseError:
    """The error for ranks that nobody can free: a Mismatch if two calls nearly met, else a
    Deadlock. ``blocked`` and ``lines`` have each rank's call and line, ``on`` whom it waits for
    in vain, ``returned`` who will call nothing more, and ``groups`` each group's ranks. Where they
    wait in several groups, each wait says in which. ``advice`` is as explain.deadlock's.
    ``calls`` has, of a group, each rank's collectives in order.
    """
    events = {r: blocked[r] for r in sorted(on)}
    if found := _near_miss(events, on, returned):
        return found
    several = len({e.group for e in events.values()}) > 1
    among = {g: f" among {explain.ranks_text(m)}" if several else "" for g, m in groups.items()}
    waits = [
        Wait(r, explain.call_text(e) + among[e.group], lines.get(r) or e.line, on[r], e.group)
        for r, e in events.items()
    ]
    parted = _parted(events.values(), calls)
    return explain.deadlock(waits, returned, max(map(len, groups.values())), advice, parted)


def _parted(
    waiting: Iterable[Event], calls: Callable[[str], Mapping[int, Sequence[Event]]]
) -> list[str]:
    """Where those had parted who wait in collectives, if they had done so before."""
    for event in waiting:
        by_rank = calls(event.group) if event.is_collective else {}
        own = by_rank.get(event.rank, ())
        at = next((k for k, call in enumerate(own) if call.seq == event.seq), 0)
        if told := explain.parted(by_rank, at):
            return told
    return []


def _near_miss(
    events: Mapping[int, Event], on: Mapping[int, tuple[int, ...]], returned: Collection[int]
) -> CourseError | None:
    """Two calls that were meant for each other and differ in one word."""
    for a in events.values():
        for b in (events[r] for r in on[a.rank] if r in events):
            meant = a.rank in on[b.rank] and {a.op, b.op} == {"send", "recv"}
            if meant and (found := explain.mismatch(a, b)):
                return found
    for send in (e for e in events.values() if e.is_send):
        recv = events.get(send.peer if send.peer is not None else -1)
        if recv is not None and recv.is_recv and recv.peer in returned:
            return explain.peers_differ(send, recv)
    return None
