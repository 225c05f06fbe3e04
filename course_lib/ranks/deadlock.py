"""Ranks that wait for what can never come.

A call is *stuck* when its counterpart has not been issued. That alone is no error: the counterpart
may be on its way. It is one when those that would have to issue it are stuck themselves, or have
left. So: start from all ranks that are stuck, and strike out whoever could still be freed by a
rank that runs. Those who remain wait for one another for ever.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from course_lib.errors import CourseError
from course_lib.failures import deadlock_error
from course_lib.ranks.matching import CallMatcher
from course_lib.ranks.rank import Rank
from course_lib.trace import Event

LOOK_SECONDS = 0.25  # between two looks at the logs of ranks that take their time
DEADLOCK_SECONDS = 1.5  # for which ranks must be stuck, unchanged, before it is called a deadlock


class DeadlockDetector:
    """Looks for a deadlock every now and then, and believes one that lasts.

    Ranks whose code speaks from several threads are not judged, as another thread may free them,
    nor is anybody where a log had no room for all that was said.
    """

    def __init__(self, ranks: Sequence[Rank], matcher: CallMatcher) -> None:
        self._ranks, self._matcher = ranks, matcher
        self.next_look = time.perf_counter() + LOOK_SECONDS
        self._stuck: dict[int, int] = {}  # rank → number of the call it is stuck in
        self._since = 0.0

    def look(self) -> CourseError | None:
        """Read what the ranks have written down; the error, if they have been stuck for long."""
        now = time.perf_counter()
        if now < self.next_look:
            return None
        self.next_look = now + LOOK_SECONDS
        for rank in self._ranks:
            rank.history.update()
        if any(r.history.several_threads or r.history.full for r in self._ranks):
            return None
        blocked = {r.number: e for r in self._ranks if (e := r.blocked_in)}
        left = [r.number for r in self._ranks if r.returned]
        lost = find_deadlock(self._matcher, blocked, left)
        stuck = {r: blocked[r].seq for r in lost}
        if stuck != self._stuck:
            self._stuck, self._since = stuck, now
        if not lost or now - self._since < DEADLOCK_SECONDS:
            return None
        lines = {r: self._ranks[r].history.blocked_at for r in lost}
        mismatch = self._matcher.mismatch()
        return mismatch or deadlock_error(blocked, lines, lost, left, len(self._ranks))


def find_deadlock(
    matcher: CallMatcher, blocked: Mapping[int, Event], left: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """rank → the ranks that it waits for in vain, for every rank that nobody can free any more,
    because its counterpart will not come, or came and does not fit (then it waits for nobody).

    ``blocked`` has the call that each blocked rank stands in, ``left`` the ranks that returned.
    """
    waiting = {r: on for r, event in blocked.items() if (on := matcher.missing(event))}
    while waiting:
        lost = set(waiting) | set(left)
        freed = [r for r, on in waiting.items() if not _in_vain(blocked[r], on, lost)]
        if not freed:
            return {r: tuple(x for x in on if x in lost) for r, on in waiting.items()}
        for rank in freed:
            del waiting[rank]
    mismatch = matcher.mismatch() if blocked else None
    return {r: () for r in mismatch.ranks if r in blocked} if mismatch else {}


def _in_vain(event: Event, on: Collection[int], lost: Collection[int]) -> bool:
    """A collective needs all its members, a receive from any source only one of them."""
    hopeless = [r for r in on if r in lost]
    return len(hopeless) == len(on) if event.is_recv else bool(hopeless)
