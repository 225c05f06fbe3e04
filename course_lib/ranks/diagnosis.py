"""From how a world ended to the error that says why.

What is known about each rank is in its Standing: whether it returned, raised, left or died, when,
what its log says that it was doing, and where its stack stood. Reading only that, the functions
here decide which failure was the cause and which were consequences.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from course_lib import explain
from course_lib.errors import CourseError, Hang, RankDied, RankFailed, Wait
from course_lib.ranks.history import History
from course_lib.ranks.matching import CallMatcher
from course_lib.ranks.standstill import explained, stuck_for_ever
from course_lib.sites import line_at
from course_lib.trace import Event, Line

# How torch and gloo complain when the other side of a connection has gone.
_LOST_PEER = re.compile(r"connection (closed|reset|refused)|broken pipe|gloo/transport", re.I)


@dataclass
class Standing:
    """One rank, as seen from outside. ``state`` is running, returned, raised, left or died."""

    rank: int
    history: History
    state: str = "running"
    at: float = float("inf")  # when it got there, on the clock of time.perf_counter()
    kind: str = ""  # class name of what it raised
    message: str = ""
    lines: list[Line] = field(default_factory=list)  # the reader's lines, outermost first
    exception: BaseException | None = None
    code: int = 0  # exit code, or minus the signal
    stack: str = ""  # what faulthandler wrote

    @property
    def failed(self) -> bool:
        return self.state in ("raised", "left", "died")

    @property
    def lost_its_peer(self) -> bool:
        return self.state == "raised" and bool(_LOST_PEER.search(self.message))


def find_deadlock(
    standings: Sequence[Standing], matcher: CallMatcher
) -> dict[int, tuple[int, ...]]:
    """rank → the ranks that it waits for in vain, for every rank that nobody can free, because its
    counterpart will not come, or came and does not fit (then it waits for nobody).

    Ranks whose code speaks from several threads are not judged, as another thread may free them,
    nor is anybody where a log had no room for all that was said.
    """
    if any(s.history.several_threads or s.history.reader.full for s in standings):
        return {}
    blocked = _blocked(standings)
    lost = stuck_for_ever(matcher, blocked, _left(standings))
    if not lost and blocked and (found := matcher.mismatch()):
        lost = dict.fromkeys((r for r in found.ranks if r in blocked), ())
    return lost


def deadlock_error(
    standings: Sequence[Standing], matcher: CallMatcher, lost: Mapping[int, tuple[int, ...]]
) -> CourseError:
    """The error for a deadlock that has been found."""
    lines = {s.rank: s.history.blocked_at for s in standings}
    blocked, left = _blocked(standings), _left(standings)
    return matcher.mismatch() or explained(blocked, lines, lost, left, len(standings))


def _blocked(standings: Sequence[Standing]) -> dict[int, Event]:
    running = ((s.rank, s.history.blocked_in) for s in standings if s.state == "running")
    return {rank: event for rank, event in running if event is not None}


def _left(standings: Sequence[Standing]) -> list[int]:
    return [s.rank for s in standings if s.state == "returned"]


def check_finished(standings: Sequence[Standing], matcher: CallMatcher) -> CourseError | None:
    """What is wrong with a world in which every rank returned: calls that met and did not fit,
    though the backend "succeeded", or a Work that nobody waited for. None if all is well.
    """
    if any(s.history.reader.full for s in standings):
        return matcher.mismatch()  # what seems to be missing may have found no room
    if found := matcher.mismatch() or matcher.absence():
        return found
    for standing in standings:
        if event := standing.history.unwaited:
            return explain.unwaited(event)
    return None


def root_cause(standings: Sequence[Standing]) -> CourseError:
    """The error for a world in which at least one rank has failed."""
    failed = sorted((s for s in standings if s.failed), key=lambda s: (s.lost_its_peer, s.at))
    first = failed[0]
    same = [s for s in failed if _alike(s, first)]
    first = min(same, key=lambda s: s.rank)
    others = [s for s in failed if s not in same]
    if first.state == "raised":
        return _raised(first, [s.rank for s in same], others)
    return _died(first, others)


def _alike(a: Standing, b: Standing) -> bool:
    return (a.state, a.kind, a.lines, a.code) == (b.state, b.kind, b.lines, b.code)


def _consequences(others: Sequence[Standing]) -> Iterator[str]:
    """Whoever lost a peer fell because of that; an error of one's own may be another story."""
    for lost, what in ((True, "fell over because of it."), (False, "failed, too.")):
        if those := [s.rank for s in others if s.lost_its_peer is lost]:
            yield f"{explain.ranks_text(those)} {what}"


def _raised(first: Standing, same: Sequence[int], others: Sequence[Standing]) -> RankFailed:
    words = f"raised {first.kind}" if first.kind else ""  # without one, the message says it all
    what = ": ".join(filter(None, [words, first.message]))
    lines = [f"{explain.ranks_text(same)} {what}", *(f"  {line}" for line in first.lines)]
    lines += _consequences(others)
    error = RankFailed("\n".join(lines), first.rank, first.kind, [s.rank for s in others])
    error.__cause__ = first.exception
    error.__suppress_context__ = True
    return error


def _died(first: Standing, others: Sequence[Standing]) -> RankDied:
    lines = [f"rank {first.rank} {_manner(first)}"]
    last = stack_lines(first.stack) or first.lines
    event = first.history.blocked_in or first.history.last
    if last:
        lines.append(f"  it was at {last[-1]}")
    elif event is not None:
        lines.append(f"  the last thing it did: {explain.call_text(event)}   {event.line or ''}")
    lines += _consequences(others)
    lines.append(_advice(first.code))
    return RankDied("\n".join(lines), first.rank, first.code, [s.rank for s in others])


def _manner(standing: Standing) -> str:
    if standing.state == "left":
        return f"left early: it called sys.exit({standing.code})."
    if standing.code >= 0:
        return f"left early: its process ended with exit code {standing.code}."
    return f"was killed by {_signal_name(-standing.code)}."


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


_ADVICE = {
    -signal.SIGKILL: "SIGKILL comes from outside: most often the system was out of memory.",
    -signal.SIGSEGV: "A segmentation fault comes from compiled code: look at the line above.",
    -signal.SIGABRT: "An abort comes from compiled code that found its state broken.",
    -signal.SIGTERM: "Somebody asked it to end.",
}


def _advice(code: int) -> str:
    if code >= 0:
        return "A rank has to return from the function: the others may still need it."
    return _ADVICE.get(code, "A signal ended it before the function returned.")


def hang(standings: Sequence[Standing], timeout: float) -> Hang:
    """The error for a world that did not come back in time."""
    running = [s for s in standings if s.state == "running"]
    waits = [_wait(s) for s in running]
    lines = [f"{explain.ranks_text([w.rank for w in waits])} did not return within {timeout:g} s."]
    for standing, wait in zip(running, waits, strict=True):
        lines.append(f"  rank {wait.rank} {_doing(wait, standing)}")
        lines += [f"    {line}" for line in _path(standing, wait)]
    lines.append("If it is only slow, give it longer: run(…, timeout=seconds).")
    return Hang("\n".join(lines), waits)


def _path(standing: Standing, wait: Wait) -> list[Line]:
    path = stack_lines(standing.stack)
    return path or ([wait.line] if wait.line else [])


def _wait(standing: Standing) -> Wait:
    event = standing.history.blocked_in
    if event is None:
        path = stack_lines(standing.stack)
        return Wait(standing.rank, "", path[-1] if path else None)
    line = standing.history.blocked_at
    on = _waits_on(event, standing)
    return Wait(standing.rank, explain.call_text(event), line, on, event.group)


def _waits_on(event: Event, standing: Standing) -> tuple[int, ...]:
    members = standing.history.groups.get(event.group, ())
    if event.peer is not None and not event.is_collective:
        return (event.peer,)
    return tuple(r for r in members if r != event.rank)


def _doing(wait: Wait, standing: Standing) -> str:
    if wait.call:
        return f"waits in {wait.call}"
    return "was running" if standing.stack else "did not answer: it may be stopped"


_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<number>\d+) in (?P<function>.+)$')


def stack_lines(dump: str) -> list[Line]:
    """The reader's lines in what faulthandler wrote of the main thread, outermost first.

    faulthandler lists the threads with the main one last, and each thread innermost first.
    """
    main = re.split(r"^(?:Current thread|Thread) .*$", dump, flags=re.M)[-1]
    lines = []
    for text in main.splitlines():
        if match := _FRAME.match(text):
            line = line_at(match["file"], int(match["number"]), match["function"])
            if line is not None:
                lines.append(line)
    return lines[::-1]
