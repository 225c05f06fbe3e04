"""Ranks that stand still: those that wait for what can never come, and those that are out of time.

A call is *stuck* when its counterpart has not been issued. That alone is no error: the counterpart
may be on its way. It is one when those that would have to issue it are stuck themselves, or have
returned. So: start from all ranks that are stuck, and strike out whoever could still be freed by a
rank that runs. Those who remain are *lost*: they wait for one another for ever.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from course_lib.diagnosis import explain
from course_lib.diagnosis.failures import deadlock_error
from course_lib.diagnosis.matching import CallMatcher
from course_lib.errors import CourseError, Hang, Wait
from course_lib.ranks.rank import Rank
from course_lib.trace import Event

LOOK_SECONDS = 0.25  # between two looks at the logs of ranks that take their time
DEADLOCK_SECONDS = 1.5  # for which ranks must be stuck, unchanged, before it is called a deadlock


class DeadlockDetector:
    """Looks for a deadlock every now and then, and believes one that lasts.

    Where the code of any rank speaks from several threads nobody is judged, as another thread may
    free it. A rank that C++ lets wait is believed to if it computes nothing, says nothing and
    stands inside torch.
    """

    def __init__(self, ranks: Sequence[Rank], matcher: CallMatcher) -> None:
        self._ranks, self._matcher = ranks, matcher
        self.next_look = time.perf_counter() + LOOK_SECONDS
        self._seen: object = None  # what keeps ranks waiting, and how far they had come
        self._since = 0.0
        self._asked = False  # for stacks

    def look(self) -> CourseError | None:
        """Read what the ranks have written down; the error, if some have been lost for long."""
        now = time.perf_counter()
        if now < self.next_look:
            return None
        self.next_look = now + LOOK_SECONDS
        for rank in self._ranks:
            rank.read_log()
        if any(rank.has_threads for rank in self._ranks):
            return None
        blocked = {rank.number: call for rank in self._ranks if (call := rank.waits_for)}
        returned = [rank.number for rank in self._ranks if rank.returned]
        mismatch = self._matcher.mismatch()
        lost = {} if mismatch else find_deadlock(self._matcher, blocked, returned)
        seen = str(mismatch) if mismatch else {r: self._progress(r) for r in lost}
        if not seen or seen != self._seen:
            self._seen, self._since, self._asked = seen, now, False
        if not seen or now - self._since < DEADLOCK_SECONDS:
            return None
        if mismatch:
            return mismatch
        if not self._all_wait(lost):
            return None
        lines = {r: self._ranks[r].blocked_at for r in lost}
        groups, calls = self._matcher.groups, self._matcher.collectives
        return deadlock_error(blocked, lines, lost, returned, groups, calls=calls)

    def _progress(self, number: int) -> object:
        """What changes when a rank that is lost does anything."""
        rank = self._ranks[number]
        if rank.blocked_in:
            return rank.blocked_in.seq
        cpu = rank.cpu_seconds()
        # what it takes to answer a signal, and threads of gloo that look around, is no computing
        return len(rank.events), object() if cpu is None else round(cpu, 1)

    def _all_wait(self, lost: Collection[int]) -> bool:
        """Whether those of them that stand in no call of Python's wait in one of C++."""
        silent = [rank for r in lost if not (rank := self._ranks[r]).blocked_in]
        if silent and not self._asked:
            self._asked = True
            for rank in silent:
                rank.ask_for_stack()
            return False  # the next look finds what they answer
        for rank in silent:
            rank.blocked_at = next(reversed(rank.stack_lines), None)
        return all(rank.is_in_torch for rank in silent)


def find_deadlock(
    matcher: CallMatcher, blocked: Mapping[int, Event], returned: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """rank → the ranks that it waits for in vain, for every rank that nobody can free any more.

    ``blocked`` has the call that each blocked rank stands in.
    """
    stuck = {r: on for r, event in blocked.items() if (on := matcher.missing(event))}
    while stuck:
        hopeless = {*stuck, *returned}
        # A collective needs all its members, a receive from any source only one of them.
        in_vain = {r: all if blocked[r].is_recv else any for r in stuck}
        freed = [r for r, on in stuck.items() if not in_vain[r](x in hopeless for x in on)]
        if not freed:
            return {r: tuple(x for x in on if x in hopeless) for r, on in stuck.items()}
        for rank in freed:
            del stuck[rank]
    return {}


def hang_error(running: Sequence[Rank], timeout: float) -> Hang:
    """The error for ranks that still run, of which each was asked where it stands."""
    who = explain.ranks_text([rank.number for rank in running])
    lines, waits = [f"{who} did not return within {timeout:g} s."], []
    for rank in running:
        path, event = rank.stack_lines, rank.blocked_in
        doing = "was running" if rank.stack else "did not answer: it may be stopped"
        doing += _unmet(rank)
        wait = Wait(rank.number, "", path[-1] if path else None)
        if event is not None:
            on = tuple(r for r in rank.matcher.groups.get(event.group, ()) if r != event.rank)
            if event.peer is not None and not event.is_collective:
                on = (event.peer,)
            call = explain.call_text(event)
            wait = Wait(rank.number, call, rank.blocked_at, on, event.group)
            doing = f"waits in {wait.call}"
        waits.append(wait)
        lines.append(f"  rank {rank.number} {doing}")
        lines += [f"    {line}" for line in path or filter(None, [wait.line])]
    lines.append("If it is only slow, give it longer: run(…, timeout=seconds).")
    return Hang("\n".join(lines), waits=tuple(waits))


def _unmet(rank: Rank) -> str:
    """Which of its calls that are under way others have not made."""
    for event in rank.in_flight.values():
        if missing := rank.matcher.missing(event):
            call = explain.call_text(event)
            has = "has" if len(missing) == 1 else "have"
            return f", and {explain.ranks_text(missing)} {has} not made its call {call}"
    return ""
