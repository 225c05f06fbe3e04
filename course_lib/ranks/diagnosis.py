"""From how a world ended to the error that says why.

What is known about each rank is in its Standing: how its part ended, if it has, what its log says
that it was doing, and where its stack stood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib import explain
from course_lib.errors import CourseError, Hang, Wait
from course_lib.failures import Outcome, deadlock_error
from course_lib.ranks.matching import CallMatcher
from course_lib.ranks.standstill import stuck_for_ever
from course_lib.trace import Event, Line
from course_lib.user_code import line_at


@dataclass
class Standing(Outcome):
    """One rank, as seen from outside; ``state`` is running until its part has ended."""

    state: str = "running"
    at: float = float("inf")
    history: Any = None
    stack: str = ""  # what faulthandler wrote


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


def why_stuck(
    standings: Sequence[Standing], matcher: CallMatcher, lost: Mapping[int, tuple[int, ...]]
) -> CourseError:
    """The error for a deadlock that has been found."""
    lines = {s.rank: s.history.blocked_at for s in standings}
    blocked, left = _blocked(standings), _left(standings)
    return matcher.mismatch() or deadlock_error(blocked, lines, lost, left, len(standings))


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
