"""What happens next: a heap in virtual time, of ranks that are ready and of the network's doings.

At one time the network comes first (ties below 1), then the ranks, then what was scheduled last
(``schedule_last``).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, NoReturn

from course_sim.rank import Call, Rank


class Abandoned(BaseException):
    """Unwinds a rank whose simulation is over. Not an Exception, so that nobody catches it."""


class Agenda:
    """Equal seeds give equal orders; 0 is the order of the ranks' numbers."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.error: BaseException | None = None
        self._heap: list[tuple[float, float, int, Any]] = []
        self.next_order = count(1).__next__
        self._draw = random.Random(seed).random if seed else None

    def wake(self, rank: Rank, at: float) -> None:
        """The rank is ready to run from ``at`` on."""
        rank.waits = None
        # after what happens in the network at that time, whose ties are below 1
        tie = 1.0 + (self._draw() if self._draw else rank.number)
        heappush(self._heap, (at, tie, self.next_order(), rank))

    def schedule(self, at: float, action: Callable[[], None]) -> None:
        """Something happens in the network at ``at``, before any rank runs at that time."""
        heappush(self._heap, (at, self.draw_tie(), self.next_order(), action))

    def schedule_last(self, order: int, action: Callable[[], None]) -> None:
        """Something happens in the network when no rank has anything more to do at this time; of
        several such things those of lower ``order`` first.
        """
        heappush(self._heap, (self.now, inf, order, action))

    def draw_tie(self) -> float:
        """A number that orders what happens at the same time: drawn, or 0 if the seed is 0."""
        return self._draw() if self._draw else 0.0

    def set_end(self, call: Call, at: float, at_once: bool = False) -> None:
        """A call's end is known now. The rank that waits for it goes on then, or ``at_once``."""
        call.record.completed = at
        if call.rank.waits is call:
            self.wake(call.rank, self.now if at_once else at)

    def next_rank(self) -> Rank | None:
        """Play what happens in the network until a rank is ready; None if none ever will be."""
        heap = self._heap
        while heap:
            self.now, _, _, item = heappop(heap)
            if type(item) is Rank:
                item.clock = self.now
                return item
            try:
                item()
            except Abandoned:
                return None
        return None

    def fail(self, error: BaseException) -> NoReturn:
        """End the simulation with this error, if it is the first."""
        self.error = self.error or error
        raise Abandoned
