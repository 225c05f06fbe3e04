"""Calls of a whole group: the k-th call of each rank meets the k-th of the others.

    rank 0   all_reduce ─┐
    rank 1   all_reduce ─┼─ the last one in: compare the calls, compute, charge the time
    rank 2   all_reduce ─┘     start = when the last has called and the wires of all are free
                               end   = start + costs.textbook_seconds(…)

Everybody is done at ``end``; a rank's Work takes the values when it is waited for. Values are
computed from what the ranks gave when they called.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from course_lib.collectives import collective
from course_lib.diagnosis import mismatch
from course_lib.diagnosis.history import History
from course_lib.errors import Mismatch
from course_lib.trace import Event
from course_sim import costs
from course_sim import tensor_memory as memory
from course_sim.agenda import Agenda
from course_sim.exchange.combine import Passed, Tensors, combine, refuse, splits
from course_sim.network import Fabric
from course_sim.rank import Call, Rank
from course_sim.records import Site, history, make_op


class Part(Call):
    """One rank's part in one call of its group."""

    __slots__ = ("calls", "given", "me", "meeting", "values")

    def __init__(
        self, calls: Collectives, meeting: Meeting, rank: Rank, op: Event, site: Site, me: int
    ) -> None:
        super().__init__(rank, op, site)
        self.calls = calls
        self.meeting = meeting
        self.me = me  # the rank's number in the group
        self.given: Tensors = []  # what the rank gave, as it was then
        self.values: Tensors = []

    def post(self) -> None:
        self.calls.join(self)

    @property
    def counterparts(self) -> Collection[Part]:
        return self.meeting.parts.values()

    @property
    def ready(self) -> bool:
        return self.meeting.complete

    @property
    def on(self) -> tuple[int, ...]:
        joined = {part.rank.number for part in self.counterparts if part.posted}
        return tuple(r for r in self.calls.played if r not in joined)

    def poll(self) -> bool:
        """Whether the call is over by now."""
        super().poll()
        return self.meeting.end is not None and self.meeting.end <= self.rank.scheduler.now

    def wait(self, timeout: Any = None) -> None:
        """Wait; a rank that gives up a monitored barrier lets all others in it fail, as on gloo,
        where it closes their connections.
        """
        try:
            super().wait(timeout)
        except RuntimeError:
            self.meeting.broken = self.record.op.op == "monitored_barrier"
            for part in self.counterparts if self.meeting.broken else ():
                if part.rank.waits is part:
                    part.rank.scheduler.wake(part.rank, part.rank.scheduler.now)
            raise
        if self.meeting.broken:
            raise RuntimeError("in monitoredBarrier: Connection closed by peer, who gave it up")

    def wait_until_all_called(self) -> float:
        """Wait until all ranks have called; returns the time at which the call ends."""
        self.record.waited = True
        scheduler = self.rank.scheduler
        scheduler.check(self.rank)
        scheduler.read_clock()
        if self.meeting.end is None:
            self.meeting.eager.add(self.me)
            scheduler.park(self.rank, self)
        return self.meeting.end or 0.0

    def not_before(self, at: float) -> None:
        """What the rank does next needs something that is there at ``at``."""
        self.rank.not_before(at)

    def take(self) -> Tensors:
        """The values."""
        values, self.values = self.values, []
        return list(map(torch.zeros_like, values)) if self.calls.fabric.network.zeros else values


class Meeting:
    """The k-th call of a group, as far as its ranks have come."""

    def __init__(self) -> None:
        self.parts: dict[int, Part] = {}  # of the ranks that have called, until the end
        # whether all have called, and the values are there; whether a rank has given it up
        self.complete = self.broken = False
        self.end: float | None = None  # when everybody is done; None until all have called
        self.joined = 0  # how many of them have been posted
        self.eager: set[int] = set()  # ranks that only wait until all have called


def _nbytes(tensor: torch.Tensor) -> int:
    """A tensor's bytes. A sparse one counts as a dense one, as ranks may fill it differently."""
    return tensor.numel() * tensor.element_size()


class Collectives:
    """All calls of one group that the whole of it makes."""

    def __init__(self, groups: Any, name: str, members: dict[int, int]) -> None:
        """``groups`` has what is one for all groups, ``members`` the ranks' numbers in this one:
        see groups.py.
        """
        self.agenda: Agenda = groups.scheduler  # see Note [Two agendas] in ahead.py
        self.fabric: Fabric = groups.fabric
        self.name = name
        self.members = members
        self.ranks = tuple(members)
        # those that call; the others do what these do: see true_size/
        self.played = tuple(filter(groups.scheduler.played.__contains__, members))
        self.wires: list[float] = groups.wires
        self._meetings: dict[int, Meeting] = {}
        self._counts = [0] * len(members)

    def issue(self, rank: Rank, passed: Passed, group: str | None = None) -> Part:
        """One rank makes its next call. ``group`` is the name that its Event carries, if that is
        not this group's: one that makes a group is a call of the whole world.
        """
        scheduler = rank.scheduler
        scheduler.check(rank)
        me, n = self.members[rank.number], len(self.ranks)
        name, first = passed.op, passed.first
        ins, outs = passed.ins, passed.outs
        kind = collective(name)
        in_splits, out_splits = splits(passed, n)
        op = make_op(
            name,
            rank.number,
            None if passed.root < 0 else self.ranks[passed.root],
            group or self.name,
            next(iter((*ins, *outs)), None) if first is None else first,
            passed.site,
            reduce_op=passed.reduce_op,
            async_op=passed.async_op,
            bytes_in=sum(map(_nbytes, ins)),
            bytes_out=0 if kind.writes_what_it_reads else sum(map(_nbytes, outs)),
            contiguous=passed.dense,
            in_splits=in_splits,
            out_splits=out_splits,
            within=passed.site.within,
        )
        # What is wrong with this call alone, as the backend would say at once.
        refuse(passed, me, n, scheduler.backend)
        if kind.memory and not passed.dense:
            scheduler.fail(mismatch.strided(op))
        if passed.shared:
            scheduler.fail(mismatch.outputs_shared(op, passed.shared))
        # Which call of the others it meets, and whether it fits them.
        number = self._counts[me]
        self._counts[me] += 1
        meeting = self._meetings.setdefault(number, Meeting())
        part = Part(self, meeting, rank, op, passed.site, me)
        for other in meeting.parts.values():
            if mismatch.between(other.record.op, op):
                scheduler.fail(self._explain_mismatch(other, part))
            break  # the others are like the first
        meeting.parts[me] = part
        if op.in_splits is not None:
            self._compare_splits(part)
        # What the rank gives. Values are there when all have called, and times when all are posted.
        part.given = list(passed.given)
        if rank.poisoned and not passed.site.carries and (name != "broadcast" or me == passed.root):
            for tensor in passed.given:
                rank.note_sent(memory.contents(tensor))
        rank.poisoned += [part.record] * passed.poisoned
        if len(meeting.parts) == len(self.played):
            del self._meetings[number]
            self._combine(meeting)
        scheduler.post(part)
        return part

    def _explain_mismatch(self, theirs: Part, part: Part) -> Mismatch:
        """The error for two calls that met and do not fit."""
        error = mismatch.between(theirs.record.op, part.record.op, self._history(part))
        assert error is not None
        return error

    def _history(self, part: Part) -> History:
        """How ranks came to this call, the last of its rank's."""
        op = part.record.op
        records = [rank.records for rank in part.rank.scheduler.ranks]
        members = self.ranks if op.group == self.name else range(len(records))
        before = history(records, members, op.group)
        return before._replace(at=len(before.calls[op.rank]) - 1)

    def _compare_splits(self, part: Part) -> None:
        """Raise if this rank and one that has called already disagree on what they move."""
        op: Any = part.record.op
        for other in part.counterparts:
            theirs: Any = other.record.op
            ours = op.in_splits[other.me], op.out_splits[other.me]
            if theirs.in_splits and ours != (theirs.out_splits[part.me], theirs.in_splits[part.me]):
                error: Any = mismatch.of_splits([op], [theirs], self.ranks, self._history(part))
                part.rank.scheduler.fail(error)

    def join(self, part: Part) -> None:
        """The rank joins the call now; the last one lets it begin."""
        meeting, agenda = part.meeting, self.agenda
        part.posted, part.record.issued = True, agenda.now
        meeting.joined += 1
        if meeting.joined < len(self.played):
            return
        meeting.end = self._find_end(part.record.op, meeting)
        parts, meeting.parts = meeting.parts, {}  # nobody waits for them any more
        for other in parts.values():
            agenda.set_end(other, meeting.end, other.me in meeting.eager)

    def _combine(self, meeting: Meeting) -> None:
        """Compute all values, outside of the graph that the last rank to call may be building."""
        parts = [meeting.parts[r] for r in range(len(self.ranks))]
        op = parts[0].record.op
        with torch.no_grad():
            values = combine(op.op, [p.given for p in parts], self._root(op), op.reduce_op)
        for part, value in zip(parts, values, strict=True):
            part.values, part.given = value, []
        meeting.complete = True

    def _root(self, op: Event) -> int:
        return 0 if op.peer is None else self.ranks.index(op.peer)

    def _find_end(self, op: Event, meeting: Meeting) -> float:
        """When the call ends, now that all have joined; the wires of all are busy until then."""
        nbytes = max(part.record.op.nbytes for part in meeting.parts.values())
        issued = (part.record.issued for part in meeting.parts.values())
        start = max(*issued, *(self.wires[r] for r in self.ranks))
        if self.fabric.network.collectives == "messages":
            end = self._play_messages(op.op, nbytes, self._root(op), start)
        else:
            alpha, beta = self.fabric.cost_between(self.ranks)
            end = start + costs.textbook_seconds(op.op, len(self.ranks), nbytes, alpha, beta)
        for r in self.ranks:
            self.wires[r] = end
        return end

    def _play_messages(self, op: str, nbytes: int, root: int, start: float) -> float:
        """When the last of the algorithm's messages is in, sent over the links step by step."""
        clocks = [start] * len(self.ranks)
        for step in costs.messages(op, len(self.ranks), nbytes, root):
            after = list(clocks)
            for src, dst, size in sorted(step, key=lambda m: max(clocks[m[0]], clocks[m[1]])):
                out, into, alpha, beta = self.fabric.route(self.ranks[src], self.ranks[dst])
                leaves = max(clocks[src], clocks[dst], out.free)
                out.free = leaves + size * beta
                into.free = end = max(leaves + alpha, into.free) + size * beta
                after[src] = max(after[src], out.free)
                after[dst] = max(after[dst], end)
            clocks = after
        return max(clocks)
