"""Calls of a whole group: the k-th call of each rank meets the k-th of the others.

    rank 0   all_reduce ─┐
    rank 1   all_reduce ─┼─ the last one in: compare the calls, compute, charge the time
    rank 2   all_reduce ─┘     start = when the last has called and the wires of all are free
                               end   = start + costs.textbook_seconds(…)

Everybody is done at ``end``; a rank has the values when it waits. Values are computed from what
the ranks passed in when they called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
import torch.distributed as dist

from course_lib import explain
from course_lib.simulated import compat, costs, hazards
from course_lib.simulated.combine import Tensors, as_it_lies, combine, refuse
from course_lib.simulated.network import Fabric
from course_lib.simulated.records import Site, call_site, op_of
from course_lib.simulated.scheduler import Rank, Scheduler
from course_lib.trace import Event

_IN_PLACE = ("all_reduce", "broadcast", "reduce")
_WRITE_WHAT_THEY_READ = (*_IN_PLACE, "all_reduce_coalesced")
_AS_IT_LIES = (*_IN_PLACE, "scatter")  # gloo moves the memory, whatever the order of dimensions


class CollectiveWork(dist.Work):
    """One rank's part in one call; the Work that the user's code, or DDP, holds."""

    def __init__(
        self, calls: Calls, call: Call, rank: Rank, op: Event, site: Site, me: int
    ) -> None:
        super().__init__()
        self.calls, self.call, self.rank, self.me = calls, call, rank, me
        self.record = rank.record(op, site)
        self.given: Tensors = []  # what the rank passed in, as it was then
        self.inputs: Tensors = []  # the same tensors, as they are now
        self.outputs: Tensors = []
        self.places: Tensors = []  # the same memory, as the values go into it
        self.values: Tensors | None = []
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
    def met(self) -> Collection[CollectiveWork]:
        return self.call.works.values()

    @property
    def ready(self) -> bool:
        return len(self.call.works) == len(self.calls.ranks)

    def deliver(self) -> None:
        """Put the values into place, and see that nobody touched the buffers meanwhile."""
        if self.values is None:
            return
        values, self.values = self.values, None
        pairs = zip(self.poisons, self.places, strict=False)
        touched = any(poison and not poison.intact(place) for poison, place in pairs)
        pairs = zip(self.given, self.inputs, strict=False)
        if touched or not all(hazards.same(before, now) for before, now in pairs):
            hazard = explain.written_into if touched else explain.written_before_wait
            self.calls.scheduler.fail(hazard(self.record.op))
        self.given = []
        with torch.no_grad():
            for out, value in zip(self.places, values, strict=True):
                zeros = self.calls.fabric.network.zeros
                out.detach().copy_(torch.zeros_like(out) if zeros else value.view(out.shape))

    @property
    def on(self) -> tuple[int, ...]:
        joined = {work.me for work in self.met if work.posted}
        return tuple(r for k, r in enumerate(self.calls.ranks) if k not in joined)

    def is_completed(self) -> bool:
        scheduler = self.calls.scheduler
        scheduler.poll(self)
        if self.call.end is None or self.call.end > scheduler.now:
            return False
        self.deliver()
        return True

    def is_success(self) -> bool:
        return self.values is None

    def exception(self) -> None:
        return None

    def result(self) -> Tensors:
        return self.outputs

    def get_future(self) -> torch.futures.Future:
        """A future of the outputs. What the user's own code asks for waits when it is waited
        for. DDP's reducer, and who asks on its behalf, waits in C++, where the baton cannot be
        handed on: it gets the values at once, and its clock pays after backward.
        """
        if call_site().direct and not compat.in_comm_hook():
            return Future(self)
        end, scheduler = self.settle(), self.calls.scheduler
        if not compat.after_backward(lambda: scheduler.not_before(self.rank, end)):
            scheduler.not_before(self.rank, end)
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self.outputs)
        return future

    def settle(self) -> float:
        """Have the values as soon as all ranks have called; returns when they would be there."""
        self.record.waited = True
        scheduler = self.calls.scheduler
        scheduler.check(self.rank)
        scheduler.read_clock()
        if self.call.end is None:
            self.call.eager.add(self.me)
            scheduler.park(self.rank, self)
        self.deliver()
        return self.call.end or 0.0


class Future(torch.futures.Future):
    """Waits in virtual time. What ``then`` makes is settled with it."""

    def __init__(self, work: CollectiveWork, first: Future | None = None) -> None:
        super().__init__()
        self._work, self._first = work, first or self

    def wait(self) -> Any:
        self._work.wait()
        if not super(Future, self._first).done():
            self._first.set_result(self._work.outputs)
        return super().wait()

    value = wait

    def done(self) -> bool:
        if not super().done() and self._work.is_completed():
            self._first.wait()
        return super().done()

    def then(self, callback: Callable[[Any], Any]) -> Future:
        child = Future(self._work, self._first)

        def settle(parent: Any) -> None:
            try:
                child.set_result(callback(parent))
            except Exception as error:
                child.set_exception(error)

        self.add_done_callback(settle)
        return child


class Call:
    """The k-th call of a group, as far as its ranks have come."""

    __slots__ = ("eager", "end", "joined", "works")

    def __init__(self) -> None:
        self.works: dict[int, CollectiveWork] = {}  # of who has called, in whatever order
        self.end: float | None = None  # when everybody is done; None until all have called
        self.joined = 0  # how many of them have been posted
        self.eager: set[int] = set()  # who only waits until all have called


class Calls:
    """All collective calls of one group."""

    def __init__(
        self, scheduler: Scheduler, fabric: Fabric, name: str, ranks: Sequence[int],
        wires: list[float], poisons: hazards.Poisons,
    ) -> None:  # fmt: skip
        self.scheduler, self.fabric, self.name, self.ranks = scheduler, fabric, name, ranks
        self.wires, self.poisons = wires, poisons  # wires[r]: when rank r's last collective ends
        self._calls: dict[int, Call] = {}
        self._counts = [0] * len(ranks)

    def issue(
        self, rank: Rank, me: int, name: str, ins: Tensors, outs: Tensors, *, site: Site,
        root: int = -1, reduce_op: str | None = None, async_op: bool = False,
        first: torch.Tensor | None = None, group: str | None = None,
    ) -> CollectiveWork:  # fmt: skip
        """One rank makes its next call. ``ins`` and ``outs`` are what it gives and gets; ``first``
        is the tensor to write down where that is not the first of them.
        """
        self.scheduler.check(rank)
        read = sum(t.nbytes for t in ins)
        written = 0 if name in _WRITE_WHAT_THEY_READ else sum(t.nbytes for t in outs)
        first = first if first is not None else (ins or outs or [None])[0]  # type: ignore[list-item]
        lying = outs if name in explain.FILL_IN_ORDER else [as_it_lies(t) for t in (*ins, *outs)]
        op = op_of(
            name, rank.number, None if root < 0 else self.ranks[root], group or self.name, read,
            written, first, site, 0, reduce_op, async_op,
            all(t.is_contiguous() for t in lying),
        )  # fmt: skip
        if any(not t.is_cpu for t in (*ins, *outs)):
            raise RuntimeError("simulated ranks have only the CPU: use course_lib.device()")
        refuse(name, ins, outs, me, len(self.ranks), reduce_op)
        if name in explain.NEED_DENSE and not op.contiguous:
            self.scheduler.fail(explain.strided(op))
        number = self._counts[me]
        self._counts[me] += 1
        call = self._calls.setdefault(number, Call())
        work = CollectiveWork(self, call, rank, op, site, me)
        for other in call.works.values():
            if error := explain.mismatch(other.record.op, op):
                self.scheduler.fail(error)
            break  # the others are like the first
        call.works[me] = work
        self._take(work, site, ins, outs)
        if work.ready:
            del self._calls[number]
            self._combine(call)
        self.scheduler.post(work)
        return work

    def _take(self, work: CollectiveWork, site: Site, ins: Tensors, outs: Tensors) -> None:
        """What a rank passes in is kept as it is now; its buffers are the call's until ``wait``."""
        op, rank = work.record.op, work.rank
        work.outputs = outs
        if op.op in _AS_IT_LIES:
            ins, outs = [as_it_lies(t) for t in ins], [as_it_lies(t) for t in outs]
        work.places = outs
        # what is only combined may be used as it is if nobody can change it before all have called
        keep = op.reduce_op is not None and not op.async_op
        work.given = ins if keep else [t.detach().clone() for t in ins]
        gives = op.op != "broadcast" or op.rank == op.peer
        # others get to see it
        if gives and not site.carries and rank.poisoned and self.poisons.left > 0:
            rank.digests += [(len(rank.records), hash(hazards.contents(t))) for t in work.given]
        if work.record.waited:
            return
        owned = {t.untyped_storage().data_ptr() for t in outs}
        if op.op in _WRITE_WHAT_THEY_READ and outs and not (op.op == "broadcast" and gives):
            work.poisons = [self.poisons.put(rank, t) for t in outs]  # nobody reads what it was
            return
        work.inputs = ins
        if not any(t.untyped_storage().data_ptr() in owned for t in ins):
            work.poisons = [self.poisons.put(rank, t) for t in outs]

    def join(self, work: CollectiveWork) -> None:
        """The rank joins the call now; the last one lets it begin."""
        call, scheduler = work.call, self.scheduler
        work.posted, work.record.issued = True, scheduler.now
        call.joined += 1
        if call.joined < len(self.ranks):
            return
        call.end = self._end(work.record.op, call)
        for other in call.works.values():
            scheduler.over(other, call.end, other.me in call.eager)

    def _combine(self, call: Call) -> None:
        works = [call.works[r] for r in range(len(self.ranks))]
        op = works[0].record.op
        values = combine(op.op, [w.given for w in works], self._root(op), op.reduce_op)
        for work, value in zip(works, values, strict=True):
            work.values = value
            if not work.inputs:
                work.given = []

    def _root(self, op: Event) -> int:
        return 0 if op.peer is None else self.ranks.index(op.peer)

    def _end(self, op: Event, call: Call) -> float:
        nbytes = max(work.record.op.nbytes for work in call.works.values())
        issued = (work.record.issued for work in call.works.values())
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
