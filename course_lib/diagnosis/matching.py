"""Which call meets which: the bookkeeping behind every diagnosis.

    send/recv    the k-th send of (group, source, destination, tag) meets the k-th recv
    collectives  the k-th collective of a group meets the k-th of every other member

Both rules count calls that were *issued*, so a slow rank or a long transfer is never taken for one
that does not come. Each call is compared once: with the first known of the calls that it meets.

A recv from any source holds up the recvs of its tag that come after it, because nobody knows whom
they meet before it is known whose message the first one took.

    matcher.add(event)            in each rank's order of issue; the ranks in any order
    matcher.find_missing(event)   the ranks that have not made the matching call
    matcher.mismatch()            the first calls that met and do not fit
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Sequence
from operator import attrgetter

from course_lib.collectives import collective
from course_lib.diagnosis import mismatch
from course_lib.diagnosis.history import History
from course_lib.errors import Mismatch
from course_lib.trace import Event, Line

# What calls that meet have in common: ("call", group), or ("message", group, source, destination,
# tag). Mismatches are reported in the order of these keys, so those of collectives come first.
Key = tuple
# What a CallMatcher was told beside calls, and keeps where it begins again.
_TOLD = ("groups", "threads", "_given_up", "_gone", "_lacking")


class CallMatcher:
    """Everything that all ranks have issued, each rank's calls in the order of issue."""

    def __init__(self) -> None:
        self.groups: dict[str, tuple[int, ...]] = {}
        self.known: list[Event] = []  # all calls, except those that torch refused
        self._calls: dict[Key, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
        # of the k-th calls with a key, the one that was known first
        self._first: dict[Key, list[Event]] = defaultdict(list)
        # by group, rank and tag: a recv from any source, and the recvs that it holds up
        self._held_up: dict[tuple[str, int, int], deque[Event]] = defaultdict(deque)
        # the smallest place of calls that do not fit, so that a program always gets the same answer
        self._bad: tuple[Key, int] | None = None
        self._strided: Event | None = None
        self._shared: tuple[Event, str] | None = None
        # rank and number of calls that ended in a timeout, and so have met nobody
        self._given_up: set[tuple[int, int]] = set()
        # how many calls of a rank to ignore in all, and how many are left of these
        self._lacking: Counter[tuple[Key, int]] = Counter()
        self._skipped: Counter[tuple[Key, int]] = Counter()
        # by group that two threads use at once: a call of one thread, and the other thread's line
        self.threads: dict[str, tuple[Event, Line | None]] = {}
        self._gone: Counter[Key] = Counter()  # how many calls of each rank are not kept

    def add(self, event: Event) -> None:
        """Take in the next call of a rank."""
        self.known.append(event)
        held_up = self._held_up[event.group, event.rank, event.tag] if event.is_recv else None
        if event.is_send and event.peer is None:
            return  # there is no such rank, as torch is about to say
        if held_up is not None and (held_up or event.peer is None):
            held_up.append(event)
        else:
            self._take_place(event)

    def settle_source(self, recv: Event) -> None:
        """A recv from any source has got its message: now its ``peer`` is known."""
        held_up = self._held_up[recv.group, recv.rank, recv.tag]
        while held_up and held_up[0].peer is not None:
            self._take_place(held_up.popleft())

    def withdraw(self, event: Event) -> None:
        """torch has refused this call, so it meets nobody: begin again without it."""
        known, shared = self.known, self._shared
        kept = {name: getattr(self, name) for name in _TOLD}
        self.__init__()  # type: ignore[misc]
        vars(self).update(kept, _skipped=kept["_lacking"].copy())
        self._shared = shared if shared and shared[0] is not event else None
        for other in known:
            if other is not event:
                self.add(other)

    def note_shared(self, event: Event, what: str) -> None:
        """Outputs of this call share memory; ``what`` is what overlap.shared_memory says of it."""
        first = self._shared[0] if self._shared else event
        if (event.rank, event.seq) <= (first.rank, first.seq):
            self._shared = event, what

    def give_up(self, event: Event) -> None:
        """A rank has waited for this call in vain and gone on: nobody has to meet it any more."""
        self._given_up.add((event.rank, event.seq))

    def _take_place(self, event: Event) -> None:
        """Make a call the next one with its key, and compare it with the one that it meets."""
        key = _key_of(event)
        if self._skipped[key, event.rank] > 0:
            self._skipped[key, event.rank] -= 1
            return
        calls, first = self._calls[key][event.rank], self._first[key]
        place = key, len(calls)
        calls.append(event)
        if len(first) < len(calls):
            first.append(event)
        elif place <= (self._bad or place) and self._is_misfit(place, event):
            self._bad = place
        if not event.contiguous and collective(event.op).memory:
            self._strided = min(self._strided or event, event, key=attrgetter("rank", "seq"))

    def skip(self, key: Key, lost: Sequence[int]) -> None:
        """Each rank's log lacks this many of the first calls with this key: begin where all logs
        have them.
        """
        self._gone[key] = max(lost)
        for rank, count in enumerate(lost):
            self._lacking[key, rank] = self._skipped[key, rank] = max(lost) - count

    def forget(self, ranks: Collection[int], keep: int = 1000) -> list[Event]:
        """Let go of calls that have met their counterparts on these ranks, except the last ones;
        returns them. The same number goes on each side, so that the rest still meet.
        """
        gone: list[Event] = []
        for key, by_rank in () if self._bad else self._calls.items():
            meeting = self.groups.get(key[1], ()) if key[0] == "call" else key[2:4]
            met = min((len(by_rank.get(r, ())) for r in meeting if r in ranks), default=0) - keep
            for calls in by_rank.values() if met > 0 else ():
                gone += calls[:met]
                del calls[:met]
            del self._first[key][: max(met, 0)]
            self._gone[key] += max(met, 0)
        ids = set(map(id, gone))
        self.known = [event for event in self.known if id(event) not in ids]
        return gone

    def _is_misfit(self, place: tuple[Key, int], event: Event) -> bool:
        """Whether a call does not fit the calls that it meets."""
        key, k = place
        return bool(
            mismatch.between(self._first[key][k], event)
            or (event.in_splits and mismatch.of_splits([event], *self._calls_at(key, k)))
        )

    def _calls_at(self, key: Key, k: int) -> tuple[list[Event], tuple[int, ...]]:
        """The k-th calls with this key that are known, and the group's ranks."""
        by_rank = sorted(self._calls[key].items())
        return [calls[k] for _, calls in by_rank if len(calls) > k], self.groups.get(key[1], ())

    def history(self, group: str, at: int = 0) -> History:
        """Each rank's collective calls of a group, in order."""
        key, ranks = ("call", group), self.groups.get(group, ())
        calls = {rank: self._calls[key][rank] for rank in ranks}
        return History(calls, at, self._gone[key])

    # -- who is missing -----------------------------------------------------------------------

    def find_missing(self, event: Event) -> tuple[int, ...]:
        """The ranks whose counterpart of this call has not been issued; () if all have been."""
        members = self.groups.get(event.group, ())
        if event.is_recv and event.peer is None:
            others = tuple(r for r in members if r != event.rank)
            keys = {r: ("message", event.group, r, event.rank, event.tag) for r in others}
            taken = {r: len(self._calls_of(key, event.rank)) for r, key in keys.items()}
            sent = any(len(self._calls_of(key, r)) > taken[r] for r, key in keys.items())
            return () if sent else others
        key, k = self._place_of(event)
        if event.peer is None or event.is_collective:
            return tuple(r for r in members if len(self._calls_of(key, r)) <= k)
        arrived = len(self._calls_of(key, event.peer))
        if event.is_send:  # a recv from any source could take it
            held_up = self._held_up[event.group, event.peer, event.tag]
            arrived += sum(recv.peer is None for recv in held_up)
        return () if arrived > k else (event.peer,)

    def find_late(self, event: Event, at: float) -> dict[int, Event | None]:
        """The ranks that had not made the matching call when this one was given up, at the time
        ``at``; with each the call that it made later, or None.
        """
        peers = () if event.peer is None else (event.peer,)
        others = self.groups.get(event.group, ()) if event.is_collective else peers
        key, k = self._place_of(event)
        theirs = {r: self._calls_of(key, r)[k : k + 1] for r in others}
        later = {r: calls[0] if calls else None for r, calls in theirs.items()}
        return {r: call for r, call in later.items() if call is None or call.issued > at}

    def _place_of(self, event: Event) -> tuple[Key, int]:
        """A call's key, and how many calls with it its rank has made before."""
        key = _key_of(event)
        return key, bisect_left(self._calls_of(key, event.rank), event.seq, key=attrgetter("seq"))

    def _calls_of(self, key: Key, rank: int) -> list[Event]:
        """A rank's calls with this key, and the recvs with it that are held up."""
        calls = self._calls[key][rank]
        if key[0] == "call":
            return calls
        _, group, source, destination, tag = key
        if rank != destination:
            return calls
        return calls + [recv for recv in self._held_up[group, rank, tag] if recv.peer == source]

    def absence(self) -> Mismatch | None:
        """The first collective that some member never called; for ranks that have all returned."""
        for group, members in sorted(self.groups.items()):
            by_rank = {r: self._calls["call", group][r] for r in members}
            k = min(map(len, by_rank.values()), default=0)
            calls = [calls[k] for calls in by_rank.values() if len(calls) > k]
            if any((call.rank, call.seq) not in self._given_up for call in calls):
                absent = [r for r, c in by_rank.items() if len(c) <= k]
                return mismatch.absent(calls[0], absent, self.history(group, k))
        return None

    # -- what does not fit ----------------------------------------------------------------------

    def mismatch(self) -> Mismatch | None:
        """The first calls that met and do not fit together, or None."""
        if self._bad:
            key, k = self._bad
            if key[1] in self.threads:
                return mismatch.of_threads(*self.threads[key[1]])
            calls, ranks = self._calls_at(key, k)
            past = self.history(key[1], k) if key[0] == "call" else History()
            found = (mismatch.between(calls[0], other, past) for other in calls[1:])
            return next(filter(None, found), None) or mismatch.of_splits(calls, calls, ranks, past)
        if self._strided:
            return mismatch.strided(self._strided)
        return mismatch.outputs_shared(*self._shared) if self._shared else None

    def two_threads(self) -> list[str]:
        """A text for each group that two threads use at once."""
        return [str(mismatch.of_threads(*found)) for found in self.threads.values()]


def _key_of(event: Event) -> Key:
    """What a call has in common with the calls that it meets."""
    if event.is_collective:
        return "call", event.group
    return "message", *event.channel
