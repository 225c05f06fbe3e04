"""Calls of a whole group: the k-th call of each rank meets the k-th of the others.

    rank 0   all_reduce ─┐
    rank 1   all_reduce ─┼─ the last one in: compare the calls, compute, charge the time
    rank 2   all_reduce ─┘     start = when the last has called and the wires of all are free
                               end   = start + costs.textbook_seconds(…)

Everybody is done at ``end``; a rank has the values when it waits. Values are computed from what
the ranks passed in when they called.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course_lib.diagnosis import explain
from course_lib.errors import Mismatch
from course_lib.overlap import shared_memory
from course_lib.simulated import costs, memory
from course_lib.simulated.ends.future import Future
from course_lib.simulated.ends.poison import Poisons
from course_lib.simulated.exchange.combine import (
    Tensors,
    as_it_lies,
    combine,
    refuse,
    splits,
)
from course_lib.simulated.isolation import compat
from course_lib.simulated.network import Fabric
from course_lib.simulated.rank import Rank
from course_lib.simulated.records import Site, call_site, collectives, op_of
from course_lib.simulated.scheduler import Scheduler
from course_lib.trace import Event

_IN_PLACE = ("all_reduce", "broadcast", "reduce")
_WRITE_WHAT_THEY_READ = (*_IN_PLACE, "all_reduce_coalesced")
_AS_IT_LIES = (*_IN_PLACE, "scatter")  # gloo moves the memory, whatever the order of dimensions


class CollectiveWork(dist.Work):
    """The Work that the user's code, or DDP, holds. It keeps the outputs, as gloo's own does; of
    ours nothing keeps the Work.
    """

    __slots__ = ("_outputs", "_part")

    def __init__(self, part: Part, outputs: Tensors) -> None:
        super().__init__()
        self._part, self._outputs = part, outputs

    def wait(self, timeout: Any = None) -> bool:
        return self._part.wait(timeout)

    def is_completed(self) -> bool:
        return self._part.is_completed()

    def is_success(self) -> bool:
        return self._part.delivered

    def exception(self) -> None:
        return None

    def result(self) -> Tensors:
        return self._outputs

    def settle(self) -> float:
        """Have the values as soon as all ranks have called; returns when they would be there."""
        return self._part.settle()

    def get_future(self) -> torch.futures.Future:
        """A future of the outputs. What the user's own code asks for waits when it is waited
        for. DDP's reducer, and who asks on its behalf, waits in C++, where the baton cannot be
        handed on: it gets the values at once, and its clock pays after backward.
        """
        if call_site().direct and not compat.in_comm_hook():
            return Future(self)
        end, rank = self.settle(), self._part.rank
        pay = partial(rank.scheduler.not_before, rank, end)
        if not compat.after_backward(pay):
            pay()
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self._outputs)
        return future


class Part:
    """One rank's part in one call. Once its values are in place it holds no tensor any more."""

    __slots__ = (
        "call",
        "calls",
        "given",
        "inputs",
        "me",
        "number",
        "places",
        "poisons",
        "posted",
        "rank",
        "record",
        "values",
    )

    def __init__(
        self, calls: Calls, call: Call, rank: Rank, op: Event, site: Site, me: int
    ) -> None:
        self.calls, self.call, self.rank, self.me = calls, call, rank, me
        self.record = rank.record(op, site)
        self.number = len(rank.records)  # of calls of the rank, this one included
        self.given: Tensors = []  # what the rank passed in, as it was then
        self.inputs: Tensors = []  # the same tensors, as they are now
        self.places: Tensors = []  # the outputs' memory, as the values go into it
        self.values: Tensors | None = []  # None once they are in place
        self.posted = False
        self.poisons: list[Any] = []

    def wait(self, timeout: Any = None) -> bool:
        self.record.waited = True
        self.calls.scheduler.wait_for(self, timeout)
        self.deliver()
        return True

    def post(self) -> None:
        self.calls.join(self)

    @property
    def met(self) -> Collection[Part]:
        return self.call.parts.values()

    @property
    def ready(self) -> bool:
        return self.call.complete

    @property
    def memory(self) -> Tensors:
        """What the call reads and writes, as long as it is not over."""
        return [*self.inputs, *self.places]

    @property
    def delivered(self) -> bool:
        return self.values is None

    def deliver(self) -> None:
        """Put the values into place, and see that nobody touched the buffers meanwhile."""
        if not self.delivered:
            compat.outside_of_modes(self._put_into_place)

    def _put_into_place(self) -> None:
        values, places = self.values or [], self.places
        pairs = zip(self.poisons, places, strict=False)
        touched = any(poison and not poison.intact(place) for poison, place in pairs)
        pairs = zip(self.given, self.inputs, strict=False)
        if touched or not all(memory.same(before, now) for before, now in pairs):
            hazard = explain.written_into if touched else explain.written_before_wait
            self.calls.scheduler.fail(hazard(self.record.op))
        zeros = self.calls.fabric.network.zeros
        with torch.no_grad():
            for out, value in zip(places, values, strict=True):
                if zeros:
                    value = torch.zeros_like(out)
                if out.is_sparse:  # a detached one would get memory of its own
                    out.copy_(value)
                    continue
                out.detach().copy_(value.view(out.shape))
                self.calls.poisons.filled[self.rank.number, out.data_ptr()] = (
                    self.record.op,
                    self.number,
                    len(self.rank.records),
                )
        self.values, self.given, self.inputs, self.places, self.poisons = None, [], [], [], []

    @property
    def on(self) -> tuple[int, ...]:
        joined = {part.me for part in self.met if part.posted}
        return tuple(r for k, r in enumerate(self.calls.ranks) if k not in joined)

    def is_completed(self) -> bool:
        scheduler = self.calls.scheduler
        scheduler.poll(self)
        if self.call.end is None or self.call.end > scheduler.now:
            return False
        self.deliver()
        return True

    def settle(self) -> float:
        self.record.waited = True
        scheduler = self.calls.scheduler
        scheduler.check(self.rank)
        scheduler.read_clock()
        if self.call.end is None:
            self.call.eager.add(self.me)
            scheduler.park(self.rank, self)
        self.deliver()
        return self.call.end or 0.0


class Call:
    """The k-th call of a group, as far as its ranks have come."""

    __slots__ = ("complete", "eager", "end", "joined", "parts")

    def __init__(self) -> None:
        self.parts: dict[int, Part] = {}  # of who has called, in whatever order, until the end
        self.complete = False  # whether all have called, and the values are there
        self.end: float | None = None  # when everybody is done; None until all have called
        self.joined = 0  # how many of them have been posted
        self.eager: set[int] = set()  # who only waits until all have called


def _nbytes(tensor: torch.Tensor) -> int:
    """Of a sparse tensor what it would take if it were none: ranks may fill it differently."""
    return tensor.numel() * tensor.element_size()


def _lies_dense(name: str, ins: Tensors, outs: Tensors) -> bool:
    """Whether all elements of what a call touches lie side by side, in the order that it needs."""
    lying = outs if name in explain.FILL_IN_ORDER else map(as_it_lies, (*ins, *outs))
    return all(t.is_sparse or t.is_contiguous() for t in lying)


class Calls:
    """All collective calls of one group."""

    uneven: Collection[str] = ("all_to_all_single", "reduce_scatter")  # each block its own length

    def __init__(
        self,
        scheduler: Scheduler,
        fabric: Fabric,
        name: str,
        ranks: Sequence[int],
        wires: list[float],
        poisons: Poisons,
    ) -> None:
        self.scheduler, self.fabric, self.name, self.ranks = scheduler, fabric, name, ranks
        self.wires, self.poisons = wires, poisons  # wires[r]: when rank r's last collective ends
        self._calls: dict[int, Call] = {}
        self._counts = [0] * len(ranks)

    def issue(
        self,
        rank: Rank,
        me: int,
        name: str,
        ins: Tensors,
        outs: Tensors,
        *,
        site: Site,
        root: int = -1,
        reduce_op: str | None = None,
        async_op: bool = False,
        first: torch.Tensor | None = None,
        group: str | None = None,
    ) -> CollectiveWork:
        """One rank makes its next call. ``ins`` and ``outs`` are what it gives and gets; ``first``
        is the tensor to write down where that is not the first of them.
        """
        self.scheduler.check(rank)
        n = len(self.ranks)
        op = op_of(
            name,
            rank.number,
            None if root < 0 else self.ranks[root],
            group or self.name,
            sum(map(_nbytes, ins)),
            0 if name in _WRITE_WHAT_THEY_READ else sum(map(_nbytes, outs)),
            first if first is not None else next(iter((*ins, *outs)), None),
            site,
            0,
            reduce_op,
            async_op,
            _lies_dense(name, ins, outs),
            splits(name, ins, outs, n),
        )
        refuse(name, ins, outs, me, n, reduce_op, self.uneven)
        if name in explain.NEED_DENSE and not op.contiguous:
            self.scheduler.fail(explain.strided(op))
        if name in explain.FILL_A_LIST and (shared := shared_memory(outs)):
            self.scheduler.fail(explain.outputs_shared(op, shared))
        number = self._counts[me]
        self._counts[me] += 1
        call = self._calls.setdefault(number, Call())
        part = Part(self, call, rank, op, site, me)
        for other in call.parts.values():
            if explain.mismatch(other.record.op, op):
                self.scheduler.fail(self._mismatch(other.record.op, op))
            break  # the others are like the first
        call.parts[me] = part
        if op.in_splits is not None:
            self._compare_splits(part)
        self._take(part, site, ins, outs)
        if len(call.parts) == len(self.ranks):
            del self._calls[number]
            self._combine(call)
        self.scheduler.post(part)
        return CollectiveWork(part, outs)

    def _mismatch(self, theirs: Event, op: Event) -> Mismatch:
        """The error for two calls that met and do not fit."""
        calls = collectives([rank.records for rank in self.scheduler.ranks], op.group)
        error = explain.mismatch(theirs, op, explain.parted(calls, len(calls[op.rank]) - 1))
        assert error is not None
        return error

    def _compare_splits(self, part: Part) -> None:
        """With every rank that has called: each two have a number of elements of their own."""
        op, me = part.record.op, part.me
        for other in part.met:
            theirs, their = other.record.op, other.me
            if not op.in_splits or not op.out_splits or not theirs.in_splits:
                continue
            fits = op.out_splits[their] == theirs.in_splits[me]
            if not fits or op.in_splits[their] != (theirs.out_splits or ())[me]:
                error = explain.splits_differ([op], [theirs], self.ranks)
                self.scheduler.fail(error or explain.strided(op))

    def _take(self, part: Part, site: Site, ins: Tensors, outs: Tensors) -> None:
        """What a rank passes in is kept as it is now; its buffers are the call's until ``wait``."""
        op, rank = part.record.op, part.rank
        if op.op in _AS_IT_LIES:
            ins, outs = [as_it_lies(t) for t in ins], [as_it_lies(t) for t in outs]
        part.places = outs
        # what is only combined may be used as it is if nobody can change it before all have called
        keep = op.reduce_op is not None and not op.async_op
        part.given = ins if keep else [t.detach().clone() for t in ins]
        gives = op.op != "broadcast" or op.rank == op.peer
        # others get to see it
        if gives and not site.carries and rank.poisoned and self.poisons.left > 0:
            rank.digests += [(len(rank.records), hash(memory.contents(t))) for t in part.given]
        if part.record.waited:
            return
        if op.op in _WRITE_WHAT_THEY_READ and outs and not (op.op == "broadcast" and gives):
            part.poisons = [self.poisons.put(rank, t) for t in outs]  # nobody reads what it was
            return
        part.inputs = ins
        owned = {t.untyped_storage().data_ptr() for t in outs}
        if not any(t.untyped_storage().data_ptr() in owned for t in ins):
            part.poisons = [self.poisons.put(rank, t) for t in outs]

    def join(self, part: Part) -> None:
        """The rank joins the call now; the last one lets it begin."""
        call, scheduler = part.call, self.scheduler
        part.posted, part.record.issued = True, scheduler.now
        call.joined += 1
        if call.joined < len(self.ranks):
            return
        call.end = self._end(part.record.op, call)
        parts, call.parts = call.parts, {}  # nobody waits for them any more
        for other in parts.values():
            scheduler.over(other, call.end, other.me in call.eager)

    def _combine(self, call: Call) -> None:
        """Of the thread that calls last nothing may show: what it is in (modes, a graph)."""
        parts = [call.parts[r] for r in range(len(self.ranks))]
        op = parts[0].record.op
        with torch.no_grad():
            values = combine(op.op, [p.given for p in parts], self._root(op), op.reduce_op)
        for part, value in zip(parts, values, strict=True):
            part.values = value
            if not part.inputs:
                part.given = []
        call.complete = True

    def _root(self, op: Event) -> int:
        return 0 if op.peer is None else self.ranks.index(op.peer)

    def _end(self, op: Event, call: Call) -> float:
        nbytes = max(part.record.op.nbytes for part in call.parts.values())
        issued = (part.record.issued for part in call.parts.values())
        start = max(*issued, *(self.wires[r] for r in self.ranks))
        if self.fabric.network.collectives == "messages":
            end = self._last_message(op.op, nbytes, self._root(op), start)
        else:
            alpha, beta = self.fabric.between(self.ranks)
            end = start + costs.textbook_seconds(op.op, len(self.ranks), nbytes, alpha, beta)
        for r in self.ranks:
            self.wires[r] = end
        return end

    def _last_message(self, op: str, nbytes: int, root: int, start: float) -> float:
        """When the last of the algorithm's messages is in, sent over the links step by step."""
        clocks = [start] * len(self.ranks)
        for step in costs.messages(op, len(self.ranks), nbytes, root):
            after = list(clocks)
            for src, dst, size in sorted(step, key=lambda m: max(clocks[m[0]], clocks[m[1]])):
                out, into, alpha, beta = self.fabric.route(self.ranks[src], self.ranks[dst])
                leaves = max(clocks[src], clocks[dst], out.free)
                out.free = leaves + size * beta
                into.free = end = max(leaves + alpha, into.free) + size * beta
                after[src], after[dst] = max(after[src], out.free), max(after[dst], end)
            clocks = after
        return max(clocks)
