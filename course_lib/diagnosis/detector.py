"""A look at ranks every now and then: do some of them wait for ever?"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from course_lib.diagnosis import deadlock
from course_lib.diagnosis.matching import CallMatcher
from course_lib.diagnosis.rank_state import RankState
from course_lib.errors import CourseError

LOOK_SECONDS = 0.25  # between two looks at the logs of ranks that take their time
DEADLOCK_SECONDS = 1.5  # for which ranks must be stuck, unchanged, before it is called a deadlock


class DeadlockDetector:
    """Looks for a deadlock, and believes one that lasts.

    Where the code of any rank speaks from several threads nobody is judged, as another thread may
    free it. A rank that C++ lets wait is believed to if it computes nothing, says nothing and
    stands inside torch.
    """

    def __init__(self, ranks: Sequence[RankState], matcher: CallMatcher) -> None:
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
        lost = {} if mismatch else deadlock.find_lost(self._matcher, blocked, returned)
        seen = str(mismatch) if mismatch else {r: self._ranks[r].progress() for r in lost}
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
        return deadlock.of_calls(blocked, lines, lost, returned, groups, calls=calls)

    def _all_wait(self, lost: Collection[int]) -> bool:
        """Whether those of them that stand in no call of Python's wait in one of C++."""
        silent = [rank for r in lost if not (rank := self._ranks[r]).blocked_in]
        if silent and not self._asked:
            self._asked = True
            for rank in silent:
                rank.stack.ask()
            return False  # the next look finds what they answer
        for rank in silent:
            rank.blocked_at = next(reversed(rank.stack.lines), None)
        return all(rank.is_in_torch for rank in silent)
