"""The Works that a rank's code holds, with the buffers that belong to its calls until ``wait()``.

    send          bytes, as they are when it is issued ─► exchange
    recv          the buffer is poisoned; what has come goes into it when it is waited for
    collectives   copies of what the rank gives ─► exchange; values go into place likewise

So what happens to a buffer in between shows. A Work asks its ``call`` whether it is over and what
has come: that may be in this process (exchange/) or in another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course_lib.collectives import collective
from course_lib.diagnosis import hazard
from course_lib.overlap import shared_memory
from course_sim import tensor_memory as memory
from course_sim.ends.future import Future
from course_sim.ends.poison import Buffers, is_intact
from course_sim.exchange.combine import Passed, Tensors
from course_sim.isolation import compat
from course_sim.records import call_site

# On gloo (torch 2.15) the second wait() ends with an error when the group's timeout has passed.
WAITED_TWICE = (
    "on gloo a second wait() for the same send or recv never returns: wait for each Work once"
)


class _MessageWork:
    """What sends and recvs have in common.

    It only says that it is a Work: torch's own, which C++ keeps a register of, would take as long
    to make as all the rest of a message, and nobody in C++ ever waits for a send or a recv.
    """

    __slots__ = ("_buffer", "_buffers", "_held", "backend", "call", "own_timeout")

    def __init__(
        self,
        call: Any,
        own_timeout: Any,
        buffer: torch.Tensor,
        buffers: Buffers,
        held: bytes | None,
        backend: str,
    ) -> None:
        """``own_timeout`` is the timeout of a wait() that is given none. ``held`` is what the
        buffer has to hold until the wait, or None if nobody can have written to it.
        """
        self.call = call
        self.own_timeout = own_timeout
        self.backend = backend  # whose rules hold: see WAITED_TWICE
        self._buffers = buffers
        self._held = held
        self._buffer: torch.Tensor | None = buffer  # None once it is the rank's own again
        buffers.last = call.number

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return dist.Work

    @property
    def memory(self) -> Tensors:
        return [] if self._buffer is None else [self._buffer]

    def wait(self, timeout: Any = None) -> bool:
        if self._buffer is None and self.call.waited:
            if self.backend == "gloo":
                raise RuntimeError(WAITED_TWICE)
            return True
        if compat.function_modes():
            return compat.outside_of_modes(self.wait, timeout)
        self.call.wait(timeout or self.own_timeout)
        if self._buffer is not None:
            self.deliver()
        return True

    def deliver(self) -> None:
        """The rank's buffer is its own again; it is what it has to be."""
        assert self._buffer is not None
        if not is_intact(self._buffer, self._held):
            self._accuse(self._buffer.data_ptr())
        self._buffer = self._held = None

    def _accuse(self, address: int) -> None:
        """Somebody has written to the buffer at this address. Raises what ends the simulation."""
        raise NotImplementedError

    def is_completed(self) -> bool:
        """False until ``wait()``, as on gloo."""
        self.call.poll()
        return self._buffer is None

    def is_success(self) -> bool:
        return self._buffer is None

    def exception(self) -> None:
        return None

    def get_future(self) -> Any:
        raise RuntimeError("gloo's send and recv have no future: call wait() on the Work")


class SendWork(_MessageWork):
    """The Work of a send: its buffer must stay as it was."""

    __slots__ = ()

    def _accuse(self, address: int) -> None:
        """Name the cause. If no call has filled the buffer since the send, the rank's own code has
        written to it. If a call from before the send has, the send read that call's buffer before
        its wait. If a later call has, it was given a tensor that is still being sent.
        """
        number = self.call.number
        writer, came = self._buffers.filled.get(address, (number, 0))
        if came < number:
            self.call.accuse(hazard.written_before_wait, number)
        elif writer < number:
            self.call.accuse(hazard.read_before_wait, writer)
        self.call.accuse(hazard.received_into, number, writer)


class RecvWork(_MessageWork):
    """The Work of a recv: its buffer is filled when it is waited for."""

    __slots__ = ()

    def deliver(self) -> None:
        buffer: Any = self._buffer
        super().deliver()
        memory.fill(buffer, self.call.take())
        self._buffers.filled[buffer.data_ptr()] = self.call.number, self._buffers.last

    def _accuse(self, address: int) -> None:
        # If another call has filled the buffer meanwhile, both were given the same tensor.
        came = self._buffers.filled.get(address, (0, 0))[1]
        self.call.accuse(hazard.written_into, self.call.number, twice=came >= self.call.number)

    def source_rank(self) -> int:
        return self.call.source

    _source_rank = source_rank


class CollectiveWork(dist.Work):
    """The Work that the user's code, or DDP, holds. It keeps the outputs, as gloo's own does, and
    no other memory once the call is over. Nothing of ours keeps the Work itself. As on torch's own,
    nobody can put an attribute on it.
    """

    __slots__ = (
        *("_buffers", "_earlier", "_outputs", "_places", "_poisons", "_under_way", "_watched"),
        *("call", "own_timeout"),
    )

    def __init__(
        self, channel: Any, rank: Any, own_timeout: Any, passed: Passed, under_way: dict[Any, None]
    ) -> None:
        """A rank makes its next call of a whole group. What it passes in is sent as it is now; its
        buffers belong to the call until ``wait``. ``under_way`` holds the group's calls that are
        not over, for which a barrier waits: see Note [A barrier is behind all].
        """
        super().__init__()
        kind = collective(passed.op)
        self.own_timeout = own_timeout
        self._buffers = rank.buffers
        self._outputs = passed.outs
        gives = passed.op == "broadcast" and channel.members[rank.number] == passed.root
        passed, poisoned = self._take(passed, gives)
        self.call = channel.collectives.issue(rank, passed)
        rank.buffers.last = self.call.number
        self._poisons = list(map(rank.buffers.put, poisoned))
        self._earlier = list(under_way) if kind.ends_earlier else []
        self._under_way = under_way
        if passed.async_op and passed.outs:
            under_way[self] = None

    def _take(self, passed: Passed, gives: bool) -> tuple[Passed, Tensors]:
        """Keep what the rank gives, as it is now, and note which memory nobody may touch. Returns
        what the exchange gets, and what is to be poisoned. ``gives``: the rank only gives.
        """
        kind = collective(passed.op)
        reads, places, outs = passed.ins, passed.outs, passed.outs
        if kind.memory == "as it lies":  # whatever the order of dimensions
            reads = list(map(memory.contiguous_view, reads))
            places = list(map(memory.contiguous_view, places))
        # what is only combined may be sent as it is if nobody can change it before all have called
        keep = passed.reduce_op is not None and not passed.async_op
        given = reads if keep else [t.detach().clone() for t in reads]
        poisoned: Tensors = []
        watched = passed.async_op and passed.site.direct  # the user's code goes on meanwhile
        if watched and kind.writes_what_it_reads and outs and not gives:
            poisoned, watched = places, False  # nobody reads what it was
        elif watched and not _share_storage(reads, places):
            poisoned = places
        passed = passed._replace(
            given=given,
            dense=_is_dense(passed),
            shared=shared_memory(outs, kind.writes_what_it_reads) if kind.fills_a_list else "",
            poisoned=len(poisoned),
        )
        # what the rank passed in, as it is now, and as it was then
        self._watched = list(zip(reads, given, strict=True)) if watched else []
        self._places: Tensors | None = places  # the outputs' memory, as the values go into it
        return passed, poisoned

    @property
    def memory(self) -> Tensors:
        """What the call reads and writes, as long as it is not over."""
        return [*(now for now, _ in self._watched), *(self._places or ())]

    def wait(self, timeout: Any = None) -> bool:
        self.call.wait(timeout or self.own_timeout)
        for work in self._earlier:
            if work in self._under_way:
                work.wait()
        self._earlier = []
        self.deliver()
        return True

    def is_completed(self) -> bool:
        if not self.call.poll():
            return False
        self.deliver()
        return True

    def is_success(self) -> bool:
        return self._places is None

    def exception(self) -> None:
        return None

    def result(self) -> Tensors:
        return self._outputs

    def get_future(self) -> torch.futures.Future:
        """A future of the outputs. A user's future blocks in ``wait()``. DDP's reducer waits in
        C++, where the baton cannot be handed on: it gets the values at once, and the time is
        charged after backward.
        """
        if call_site().direct and not compat.in_comm_hook():
            return Future(self)
        end = self.call.wait_until_all_called()
        self.deliver()
        pay = partial(self.call.not_before, end)
        if not compat.after_backward(pay):
            pay()
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self._outputs)
        return future

    def deliver(self) -> None:
        """Put the values into place, and see that nobody touched the buffers meanwhile."""
        if self._places is not None:
            compat.outside_of_modes(self._put_into_place, self._places)

    def _put_into_place(self, places: Tensors) -> None:
        if not all(map(is_intact, places, self._poisons)):
            self.call.accuse(hazard.written_into, self.call.number)
        if not all(memory.same(*pair) for pair in self._watched):
            self.call.accuse(hazard.written_before_wait, self.call.number)
        with torch.no_grad():
            for out, value in zip(places, self.call.take(), strict=True):
                if out.is_sparse:  # a detached one would get memory of its own
                    out.copy_(value)
                    continue
                out.detach().copy_(value.view(out.shape))
                self._buffers.filled[out.data_ptr()] = self.call.number, self._buffers.last
        self._places = None
        self._watched = []
        self._poisons = []
        self._under_way.pop(self, None)


class WorkWithoutFuture(CollectiveWork):
    """The Work of a call for which gloo has no future."""

    __slots__ = ()

    def get_future(self) -> torch.futures.Future:
        raise RuntimeError("gloo's reduce_scatter has no future: call wait() on the Work")


def _share_storage(ins: Tensors, outs: Tensors) -> bool:
    """Whether something of both lies in one storage."""
    owned = {t.untyped_storage().data_ptr() for t in outs}
    return any(t.untyped_storage().data_ptr() in owned for t in ins)


def _is_dense(passed: Passed) -> bool:
    """Whether all elements of what a call touches lie side by side, in the order that it needs."""
    lying: Iterable[torch.Tensor] = passed.outs
    if collective(passed.op).memory != "in order":
        lying = map(memory.contiguous_view, (*passed.ins, *passed.outs))
    return all(t.is_sparse or t.is_contiguous() for t in lying)
