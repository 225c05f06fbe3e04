"""Which call meets which: the bookkeeping behind every diagnosis.

    send/recv    the k-th send of (group, source, destination, tag) meets the k-th recv
    collectives  the k-th collective of a group meets the k-th of every other member

Both rules count calls that were *issued*, so a rank that is slow, or a transfer that takes long,
never looks like one that does not come. Each pair is compared once, when the second of the two
becomes known.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import attrgetter

from course_lib import explain
from course_lib.errors import Mismatch
from course_lib.trace import Event

Key = tuple[str, int, int, int]  # group, source, destination, tag

_seq = attrgetter("seq")


class CallMatcher:
    """Everything that all ranks have issued, each rank's calls in the order of issue."""

    def __init__(self) -> None:
        self.groups: dict[str, tuple[int, ...]] = {}
        self._sends: dict[Key, list[Event]] = defaultdict(list)
        self._recvs: dict[Key, list[Event]] = defaultdict(list)
        self._compared: Counter[Key] = Counter()
        self._open: Counter[tuple[str, int, int]] = Counter()  # recvs from a source yet unknown
        # by group and rank, and by group alone whichever rank's k-th call became known first
        self._collectives: dict[str, dict[int, list[Event]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._first: dict[str, list[Event]] = defaultdict(list)
        # the smallest of those that do not fit, so that a program always gets the same answer
        self._bad_collective: tuple[str, int] | None = None
        self._bad_message: tuple[Key, int] | None = None
        self._strided: Event | None = None

    def add(self, event: Event) -> None:
        """Take in the next call of a rank."""
        if event.is_collective:
            self._add_collective(event)
        elif event.peer is not None:
            self._queue(event).append(event)
            self._compare(_key(event))
        elif event.is_recv:
            self._open[event.group, event.rank, event.tag] += 1

    def found_source(self, recv: Event) -> None:
        """A recv from any source has been served: now its ``peer`` is known."""
        insort(self._queue(recv), recv, key=_seq)
        self._open[recv.group, recv.rank, recv.tag] -= 1
        for source in self.groups.get(recv.group, ()):
            self._compare((recv.group, source, recv.rank, recv.tag))

    def withdraw(self, event: Event) -> None:
        """torch has refused this call, which meets nobody then: begin again without it."""
        queues = [*self._sends.values(), *self._recvs.values()]
        queues += [calls for ranks in self._collectives.values() for calls in ranks.values()]
        groups, still_open = self.groups, self._open
        if event.is_recv and event.peer is None:
            still_open[event.group, event.rank, event.tag] -= 1
        self.__init__()  # type: ignore[misc]
        self.groups, self._open = groups, still_open
        for other in (other for queue in queues for other in queue if other is not event):
            self.add(other)

    def _queue(self, event: Event) -> list[Event]:
        """The sends, or the recvs, that a call between two known ranks stands in line with."""
        return (self._sends if event.is_send else self._recvs)[_key(event)]

    # -- who is missing -----------------------------------------------------------------------

    def missing(self, event: Event) -> tuple[int, ...]:
        """The ranks whose counterpart of this call has not been issued; () if all have been."""
        members = self.groups.get(event.group, ())
        if event.is_collective:
            calls = self._collectives[event.group]
            k = _place(event, calls[event.rank])
            return tuple(r for r in members if len(calls[r]) <= k)
        if event.peer is None:
            others = tuple(r for r in members if r != event.rank)
            return others if event.is_recv and self._nothing_sent_to(event, others) else ()
        k = _place(event, self._queue(event))
        arrived = len(self._recvs[_key(event)] if event.is_send else self._sends[_key(event)])
        if event.is_send:
            arrived += self._open[event.group, event.peer, event.tag]
        return () if arrived > k else (event.peer,)

    def _nothing_sent_to(self, recv: Event, others: Sequence[int]) -> bool:
        """Whether every message with this tag has already gone to a recv that names its source."""
        return all(
            len(self._sends[key]) <= len(self._recvs[key])
            for key in ((recv.group, r, recv.rank, recv.tag) for r in others)
        )

    def absence(self) -> Mismatch | None:
        """For ranks that have all returned: the first collective that some member never called."""
        for group, members in sorted(self.groups.items()):
            queues = [self._collectives[group][r] for r in members]
            k = min(map(len, queues), default=0)
            calls = [q[k] for q in queues if len(q) > k]
            if calls:
                absent = [r for r, q in zip(members, queues, strict=True) if len(q) <= k]
                return explain.absent(calls[0], absent)
        return None

    # -- what does not fit ----------------------------------------------------------------------

    def _add_collective(self, event: Event) -> None:
        calls, first = self._collectives[event.group][event.rank], self._first[event.group]
        place = event.group, len(calls)
        calls.append(event)
        if len(first) < len(calls):
            first.append(event)
        elif place <= (self._bad_collective or place) and explain.mismatch(first[place[1]], event):
            self._bad_collective = place
        if not event.contiguous and event.op in ("all_reduce", "broadcast", "reduce"):
            self._strided = min(self._strided or event, event, key=attrgetter("rank", "seq"))

    def _compare(self, key: Key) -> None:
        """Compare the pairs that have met since the last time."""
        group, _, destination, tag = key
        if self._open[group, destination, tag]:
            return  # whose message that recv takes decides who meets whom from there on
        sends, recvs = self._sends[key], self._recvs[key]
        for k in range(self._compared[key], min(len(sends), len(recvs))):
            self._compared[key] = k + 1
            place = key, k
            if place <= (self._bad_message or place) and explain.mismatch(sends[k], recvs[k]):
                self._bad_message = place

    def mismatch(self) -> Mismatch | None:
        """The first pair of calls that met and do not fit together, or None."""
        if self._bad_collective:
            group, k = self._bad_collective
            ranks = sorted(self._collectives[group].items())
            first, *others = (calls[k] for _, calls in ranks if len(calls) > k)
            return next(filter(None, (explain.mismatch(first, other) for other in others)))
        if self._bad_message:
            key, k = self._bad_message
            return explain.mismatch(self._sends[key][k], self._recvs[key][k])
        return explain.strided(self._strided) if self._strided else None


def _place(event: Event, calls: Sequence[Event]) -> int:
    return bisect_left(calls, event.seq, key=_seq)


def _key(event: Event) -> Key:
    """What a send and its recv have in common; both ends are known."""
    ends = (event.rank, event.peer) if event.is_send else (event.peer, event.rank)
    return event.group, *ends, event.tag
