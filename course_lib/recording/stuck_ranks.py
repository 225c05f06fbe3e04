"""Ranks that stand still: they wait for what can never come, or the time is over.

DeadlockDetector   is there a deadlock? Asked again and again while the ranks run
hang_error         the timeout has passed: where does each rank stand?
find_late          a wait has timed out: what did the rank do for which it waited?
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from course_lib.diagnosis import deadlock
from course_lib.diagnosis.failure import LateRank, blame_who_left
from course_lib.diagnosis.lines import among, call_text, ranks_text
from course_lib.diagnosis.matching import CallMatcher
from course_lib.errors import CourseError, Hang, Wait
from course_lib.recording.rank_state import RankState
from course_lib.trace import Event

LOOK_SECONDS = 0.25  # between two looks at the logs
DEADLOCK_SECONDS = 1.5  # how long ranks must be stuck, unchanged, before it is called a deadlock


class DeadlockDetector:
    """Looks for a deadlock, and reports one that lasts.

    If any rank makes calls from several threads, nothing is reported, because another thread may
    free the one that waits. A rank that waits in C++ counts as waiting only if it is idle, silent
    and inside torch.
    """

    def __init__(self, ranks: Sequence[RankState], matcher: CallMatcher) -> None:
        self._ranks, self._matcher = ranks, matcher
        self.next_look = time.perf_counter() + LOOK_SECONDS
        self._seen: object = None  # why ranks are stuck, and how far they have come
        self._since = 0.0  # when that was first seen
        self._asked = False  # whether ranks have been asked for their stacks since then

    def look(self) -> CourseError | None:
        """Read what the ranks have written down; returns the error if some have been lost, or calls
        have not fitted, for DEADLOCK_SECONDS.
        """
        now = time.perf_counter()
        if now < self.next_look:
            return None
        self.next_look = now + LOOK_SECONDS
        for rank in self._ranks:
            rank.read_log()
        if any(rank.has_threads for rank in self._ranks):
            return None
        going = [rank for rank in self._ranks if rank.outcome is None]
        blocked = {rank.number: call for rank in going if (call := rank.waits_for)}
        returned = [rank.number for rank in self._ranks if rank.returned]
        misfit = self._matcher.mismatch()
        lost = {} if misfit else deadlock.find_lost(self._matcher, blocked, returned)
        # What is wrong counts only if it stays the same, look after look, for DEADLOCK_SECONDS.
        seen = str(misfit) if misfit else {r: self._ranks[r].progress() for r in lost}
        if not seen or seen != self._seen:
            self._seen, self._since, self._asked = seen, now, False
        if not seen or now - self._since < DEADLOCK_SECONDS:
            return None
        if misfit:
            return misfit
        return self.error(blocked, returned) if self._ask_if_all_wait(lost) else None

    def _ask_if_all_wait(self, lost: Collection[int]) -> bool:
        """Whether all lost ranks wait. Those that stand in no call of Python's are asked for their
        stacks at the first look, and the next look reads what they have answered.
        """
        silent = [rank for r in lost if not (rank := self._ranks[r]).blocked_in]
        if silent and not self._asked:
            self._asked = True
            for rank in silent:
                rank.stack.ask()
            return False
        for rank in silent:
            rank.blocked_at = next(reversed(rank.stack.lines), None)
        return all(rank.is_in_torch for rank in silent)

    def error(self, blocked: Mapping[int, Event], returned: Collection[int]) -> CourseError | None:
        """The error for the ranks that are lost, if there are any."""
        lost = deadlock.find_lost(self._matcher, blocked, returned)
        if not lost:
            return None
        lines = {r: self._ranks[r].blocked_at for r in lost}
        groups, history = self._matcher.groups, self._matcher.history
        error = deadlock.from_calls(blocked, lines, lost, returned, groups, history=history)
        return blame_who_left(error, [rank.outcome for rank in self._ranks if rank.outcome])


# ---- those for whom others have waited too long --------------------------------------------------


def ask_who_is_late(ranks: Sequence[RankState]) -> None:
    """Ask the ranks for which others have waited in vain where they stand now."""
    numbers = {number for rank in ranks for number in rank.find_awaited()}
    for rank in (rank for rank in ranks if rank.number in numbers):
        if rank.outcome is None and not rank.blocked_in:
            rank.stack.ask()


def find_late(ranks: Sequence[RankState]) -> None:
    """Note in the outcome of each rank whose wait timed out for which ranks it had waited."""
    for rank in ranks:
        if rank.outcome and rank.outcome.timed_out:
            awaited = rank.find_awaited().items()
            known = [(ranks[r], call) for r, call in awaited if r < len(ranks) and ranks[r].ready]
            at = rank.gave_up_at
            rank.outcome.late = [_describe_late(other, call, at) for other, call in known]


def _describe_late(rank: RankState, call: Event | None, at: float) -> LateRank:
    """What a rank did at the time ``at``, when others gave up the call, which it may have made
    later.
    """
    after = call.issued - at if call else None
    if call is None and rank.returned:
        return LateRank(rank.number, "had returned.")
    last = next((e for e in reversed(rank.events) if e and e.issued <= at), None)
    if last and not last.async_op and (last.completed is None or last.completed > at):
        there = [last.line] if last.line else []
        return LateRank(rank.number, f"waited in {call_text(last)} at:", there, after)
    if (path := rank.stack.lines) and not (call and path[-1] == call.line):
        return LateRank(rank.number, "stood at:", path, after)
    if last and last.line:
        return LateRank(rank.number, f"had last called {call_text(last)} at:", [last.line], after)
    return LateRank(rank.number, made_after=after)


def hang_error(running: Sequence[RankState], timeout: float) -> Hang:
    """The error for ranks that still run; each was asked where it stands."""
    who = ranks_text([rank.number for rank in running])
    lines, waits = [f"{who} did not return within {timeout:g} s."], []
    calls = [rank.blocked_in for rank in running if rank.blocked_in]
    where = among(running[0].matcher.groups, [call.group for call in calls])
    for rank in running:
        path, event = rank.stack.lines, rank.blocked_in
        doing = "was running" if rank.stack.text else "did not answer: it may be stopped"
        if unmet := rank.say_unmet(*rank.in_flight.values()):
            doing += f", and {unmet}"
        wait = Wait(rank.number, "", path[-1] if path else None)
        if event is not None:
            on = tuple(r for r in rank.matcher.groups.get(event.group, ()) if r != event.rank)
            if event.peer is not None and not event.is_collective:
                on = (event.peer,)
            call = call_text(event) + where[event.group]
            wait = Wait(rank.number, call, rank.blocked_at, on, event.group)
            doing = f"waits in {wait.call}"
        waits.append(wait)
        lines.append(f"  rank {rank.number} {doing}")
        lines += [f"    {line}" for line in path or filter(None, [wait.line])]
    lines += running[0].matcher.two_threads()
    lines.append("If it is only slow, give it longer: run(…, timeout=seconds).")
    return Hang("\n".join(lines), waits=tuple(waits))
