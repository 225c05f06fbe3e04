"""Which call meets which: the bookkeeping behind every diagnosis.

    send/recv    the k-th send of (group, source, destination, tag) meets the k-th recv
    collectives  the k-th collective of a group meets the k-th of every other member

Both rules count calls that were *issued*, so a rank that is slow, or a transfer that takes long,
never looks like one that does not come.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from course_lib import explain
from course_lib.errors import Mismatch
from course_lib.trace import Event

Key = tuple[str, int, int, int]  # group, source, destination, tag


class Board:
    """Everything that all ranks have issued, in the order in which each issued it."""

    def __init__(
        self, events: Mapping[int, Sequence[Event]], groups: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.groups = groups
        self.sends: dict[Key, list[Event]] = defaultdict(list)
        self.recvs: dict[Key, list[Event]] = defaultdict(list)
        self.open_recvs: Counter[tuple[str, int, int]] = Counter()  # from any source, still empty
        self.collectives: dict[tuple[str, int], list[Event]] = defaultdict(list)
        self.place: dict[tuple[int, int], int] = {}  # (rank, seq) → its k, from 0
        for rank_events in events.values():
            for event in rank_events:
                self._add(event)

    def _add(self, event: Event) -> None:
        if event.is_recv and event.peer is None:
            self.open_recvs[event.group, event.rank, event.tag] += 1
            return
        queue = self._queue(event)
        self.place[event.rank, event.seq] = len(queue)
        queue.append(event)

    def _queue(self, event: Event) -> list[Event]:
        if event.is_send and event.peer is not None:
            return self.sends[event.group, event.rank, event.peer, event.tag]
        if event.is_recv and event.peer is not None:
            return self.recvs[event.group, event.peer, event.rank, event.tag]
        return self.collectives[event.group, event.rank]

    # -- who is missing -----------------------------------------------------------------------

    def missing(self, event: Event) -> tuple[int, ...]:
        """The ranks whose counterpart of this call has not been issued; () if all have been."""
        members = self.groups.get(event.group, ())
        if event.is_send and event.peer is not None:
            return (event.peer,) if self._no_recv_for(event) else ()
        if event.is_recv and event.peer is not None:
            key = (event.group, event.peer, event.rank, event.tag)
            arrived = len(self.sends[key]) > self.place[event.rank, event.seq]
            return () if arrived else (event.peer,)
        if event.is_recv:
            others = tuple(r for r in members if r != event.rank)
            return others if self._nothing_sent_to(event, others) else ()
        k = self.place[event.rank, event.seq]
        return tuple(r for r in members if len(self.collectives[event.group, r]) <= k)

    def _no_recv_for(self, send: Event) -> bool:
        key = (send.group, send.rank, send.peer, send.tag)
        could = len(self.recvs[key]) + self.open_recvs[send.group, send.peer, send.tag]  # type: ignore[index]
        return could <= self.place[send.rank, send.seq]

    def _nothing_sent_to(self, recv: Event, others: Sequence[int]) -> bool:
        """Whether every message with this tag has already gone to a recv that names its source."""
        return all(
            len(self.sends[key]) <= len(self.recvs[key])
            for key in ((recv.group, r, recv.rank, recv.tag) for r in others)
        )

    # -- what does not fit ----------------------------------------------------------------------

    def mismatch(self) -> Mismatch | None:
        """The first pair of calls that met and do not fit together, or None."""
        return self._collective_mismatch() or self._message_mismatch() or self._stride()

    def _collective_mismatch(self) -> Mismatch | None:
        for group, members in sorted(self.groups.items()):
            queues = [self.collectives[group, r] for r in members]
            for calls in zip(*queues, strict=False) if len(queues) > 1 else ():
                for other in calls[1:]:
                    if found := explain.mismatch(calls[0], other):
                        return found
            if found := self._early_mismatch(queues):
                return found
        return None

    @staticmethod
    def _early_mismatch(queues: Sequence[Sequence[Event]]) -> Mismatch | None:
        """Past the calls that all members have made: those that at least two have made."""
        for k in range(min(map(len, queues), default=0), max(map(len, queues), default=0)):
            calls = [q[k] for q in queues if len(q) > k]
            for other in calls[1:]:
                if found := explain.mismatch(calls[0], other):
                    return found
        return None

    def absence(self) -> Mismatch | None:
        """For ranks that have all returned: the first collective that some member never called."""
        for group, members in sorted(self.groups.items()):
            queues = [self.collectives[group, r] for r in members]
            k = min(map(len, queues), default=0)
            calls = [q[k] for q in queues if len(q) > k]
            if calls:
                absent = [r for r, q in zip(members, queues, strict=True) if len(q) <= k]
                return explain.absent(calls[0], absent)
        return None

    def _message_mismatch(self) -> Mismatch | None:
        for key in sorted(self.sends):
            for send, recv in zip(self.sends[key], self.recvs[key], strict=False):
                if found := explain.mismatch(send, recv):
                    return found
        return None

    def _stride(self) -> Mismatch | None:
        for events in self.collectives.values():
            for event in events:
                if not event.contiguous and event.op in ("all_reduce", "broadcast", "reduce"):
                    return explain.strided(event)
        return None
