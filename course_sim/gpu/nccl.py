"""NCCL's rules, where they differ from gloo's: calls are handed to streams, and one after another.

    dist.all_reduce(x)   host ─► Gpu.give ─► the group's Lane ─ in order, once the input is ready ─►
                                             the call takes place, at that time: in the current
                                             stream, or, with async_op=True, in the communicator's
    wait()               the thread waits for the values, the current stream for the end; the host's
                         clock stands only in barrier() and in what looks at values

A group has one communicator, for collectives, batches and single sends and receives alike: that is
how torch does it when init_process_group was given a device_id. Tags are ignored, and there is no
receiving from anybody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
import torch.distributed as dist

from course_lib.collectives import MAKE_GROUPS  # ranks meet in the store, not on their GPUs
from course_lib.diagnosis import deadlock, lines, mismatch
from course_lib.errors import CourseError, Deadlock, Wait
from course_lib.trace import Event
from course_sim.ends.simulated_group import SimulatedGroup
from course_sim.exchange.combine import Tensors, refuse_dtype
from course_sim.exchange.groups import Groups
from course_sim.exchange.mail import Key, Mail, Message, Send
from course_sim.gpu.streams import Gpu, Lane
from course_sim.gpu.tensor_place import HOST, place_of
from course_sim.rank import Call, Rank
from course_sim.scheduler import Scheduler

_CROSSED = (
    "They use these groups in different order, and on GPUs each may hold what the other needs to "
    "start, even where this run came through. Use groups in the same order on all ranks."
)
_TOGETHER = "Start them together: dist.batch_isend_irecv."
_ASSUMED = (
    "That is so where a group has one communicator, as is modelled here; torch's backend "
    "'nccl-lazy' makes one for each pair of ranks, and there these two calls do not meet. "
)
_SAME_ORDER = "Call them in the same order on all ranks, or give one of them a group of its own."


class NcclScheduler(Scheduler):
    """The clocks are those of hosts; calls and computing go to streams."""

    backend = "nccl"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.owners: dict[tuple[int, int], int] = {}  # by machine and GPU: who uses it
        self.on_host: set[str] = set()  # groups of gloo
        for rank in self.ranks:
            rank.gpu = self.make_gpu(rank)
            rank.has_gpu = True

    def make_gpu(self, rank: Rank) -> Gpu:
        return Gpu(rank)

    def is_hosts(self, op: Event) -> bool:
        """Whether a call is one between hosts, which no GPU knows of."""
        return op.op in MAKE_GROUPS or op.group in self.on_host

    def post(self, call: Call) -> None:
        """Give a call to the GPU, alone or with the batch that is being put together."""
        op, gpu = call.record.op, call.rank.gpu
        if self.is_hosts(op):
            super().post(call)
        elif op.group in gpu.batches:
            gpu.batches[op.group].append(call)
        else:
            gpu.give(op.group, [call])

    def set_end(self, call: Call, at: float, at_once: bool = False) -> None:
        """The thread goes on now that the end is known; its clock has never stood."""
        rank, op = call.rank, call.record.op
        if self.is_hosts(op):
            return super().set_end(call, at)
        call.record.completed = at
        if rank.waits is call:
            self.wake(rank, rank.clock)
        return rank.gpu.lanes[op.group].set_end(call, at)

    def wait_for(self, call: Call, timeout: Any = None) -> None:
        """The thread waits until the call's end is known; the current stream waits for that end."""
        rank, record = call.rank, call.record
        if timeout:
            self.wait_at_most(call, timeout)
        if self.is_hosts(record.op):
            return super().wait_for(call)
        self.check(rank)
        if record.completed is None:
            self.park(rank, call)
        assert record.completed is not None
        rank.gpu.lanes[record.op.group].deliver_before(call)
        call.work = None  # the Work that is waited for delivers itself
        rank.not_before(record.completed)
        if record.op.op == "barrier" and not record.op.async_op:
            rank.gpu.current.synchronize()
        return None

    def poll(self, call: Any) -> None:
        """A call that is over is delivered when somebody asks, unlike on gloo."""
        super().poll(call)
        over = call.record.completed is not None and call.record.completed <= self.now
        if over and call.work is not None:
            call.work.wait()


class NcclMail(Mail):
    """Messages by NCCL's rules: no tags, and no receiving from any source."""

    agenda: NcclScheduler

    def _describe(self, *call: Any) -> tuple[Event, Key]:
        op, (to, other, tag) = super()._describe(*call)
        if op.group in self.agenda.on_host:
            return op, (to, other, tag)
        if other < 0:
            self.agenda.fail(mismatch.no_source(op))
        return op, (to, other, 0)

    def find_misfit(self, send: Event, recv: Event) -> CourseError | None:
        if send.tag != recv.tag and send.group not in self.agenda.on_host:
            return mismatch.pair(send, recv, "tag on NCCL", send.tag, recv.tag)
        return super().find_misfit(send, recv)

    def begin(self, send: Send) -> None:
        """Begin at the later of both times. The side that was posted last need not be the later
        one, as threads run ahead of streams.
        """
        both = max(send.record.issued, send.partner.record.issued)
        if both > self.agenda.now:
            self.agenda.schedule(both, lambda: self.begin(send))
        else:
            super().begin(send)


class NcclGroup(SimulatedGroup):
    """One rank's end of a group: each call waits in the group's Lane until its turn comes."""

    backend = "nccl"
    supports_coalescing = True

    @property
    def _device_types(self) -> list[torch.device]:
        both = [torch.device("cpu")] if self._rank.gpu.gloo_too else []
        return both + super()._device_types

    def new_group(self, ranks: Sequence[int], *, backend: Any, **how: Any) -> Any:
        """One of gloo may lie beside those of NCCL, for what is on the hosts."""
        if not (self._rank.says_cuda and str(backend) == "gloo"):
            return super().new_group(ranks, backend=backend, **how)
        made = super().new_group(ranks, backend=None, **how)
        if made is None:
            return None
        self._rank.scheduler.on_host.add(made._channel.name)
        return HostGroup(self._groups, self._rank, how["group_name"], made._channel)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        raise ValueError("NCCL has no monitored_barrier: call barrier(), or use a group of gloo")

    def _start_coalescing(self, device: Any) -> None:
        self._rank.gpu.batches[self._channel.name] = []

    def _end_coalescing(self, device: Any) -> Batch:
        gpu, name = self._rank.gpu, self._channel.name
        calls = gpu.batches.pop(name)
        if calls:
            gpu.give(name, calls)
        return Batch([call.work for call in calls])

    def blocks(self, *tensors: torch.Tensor) -> Tensors:
        """NCCL counts elements, whatever the tensor's shape."""
        return super().blocks(*(x.view(-1) if x.shape[0] % self._size else x for x in tensors))

    def _send(self, tensor: torch.Tensor, *more: Any) -> Any:
        refuse_dtype("send", tensor, self.backend)
        return self._make_in_order([tensor], super()._send, tensor, *more)

    def _recv(self, tensor: torch.Tensor, *more: Any) -> Any:
        return self._make_in_order([tensor], super()._recv, tensor, *more)

    def _issue(self, op: str, ins: Tensors, outs: Tensors, *opts: Any, **more: Any) -> Any:
        if self._rank.says_cuda and not all(map(_is_dense, [*ins, *outs])):
            raise ValueError("Tensors must be contiguous")
        return self._make_in_order([*ins, *outs], super()._issue, op, ins, outs, *opts, **more)

    def _make_in_order(self, tensors: Tensors, make: Callable, *args: Any, **more: Any) -> Any:
        """A call after those before it; its lane knows the Work, and so its memory."""
        if self._rank.says_cuda:
            self._refuse_places(tensors)
        if lane := self._rank.gpu.lanes.get(self._channel.name):
            lane.finish_before(tensors)
        work = make(*args, **more)
        work.call.work = work
        return work

    def _refuse_places(self, tensors: Tensors) -> None:
        """Raise if a tensor is not on a GPU, or on one that another rank of this machine uses."""
        rank, gpu = self._rank, self._rank.gpu
        # A tensor that C++ has made has no mark. If the rank uses one GPU, it lies there.
        only = next(iter(gpu.used)) if len(gpu.used) == 1 else None
        for found in {place_of(tensor) for tensor in tensors}:
            if found == HOST and not gpu.gloo_too:
                raise RuntimeError("No backend type associated with device type cpu")
            place = only if found is None else found
            if place in (None, HOST):
                continue
            machine = rank.number // int(os.environ["LOCAL_WORLD_SIZE"])
            owner = rank.scheduler.owners.setdefault((machine, gpu.visible[place]), rank.number)
            if owner != rank.number:
                raise dist.DistBackendError(
                    f"NCCL error, invalid usage: Duplicate GPU detected: rank {rank.number} and "
                    f"rank {owner} both on CUDA device {place}. Call "
                    'torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) first.'
                )


class HostGroup(SimulatedGroup):
    """A group of gloo in a job on GPUs."""

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]


class Batch(torch.distributed.Work):
    """The calls of a batch are waited for as one."""

    __slots__ = ("_works",)

    def __init__(self, works: list[Any]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: Any = None) -> bool:
        return all(work.wait(timeout) for work in self._works)

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)


class NcclGroups(Groups):
    """All groups of a simulation, and what their lanes can tell of ranks that do not go on."""

    mail = NcclMail
    scheduler: NcclScheduler

    def form_again(self, rank: Rank, backend: str) -> Any:
        """A script that names no backend, or both, has gloo for tensors of the host."""
        rank.gpu.gloo_too = rank.says_cuda and ("gloo" in backend or backend == "undefined")
        return super().form_again(rank, backend)

    def find_cause(self, call: Call) -> Call:
        """What a rank waits for in the end: the call that is under way in its communicator."""
        lane = _lane_of(call)
        return lane.under_way[0] if lane and call not in lane.under_way else call

    def find_unfinished(self) -> CourseError | None:
        return super().find_unfinished() or self._find_crossed()

    def _find_crossed(self) -> Deadlock | None:
        """The error if two ranks use two groups in different order: each group's kernels may hold
        what the other's need to start, and then both wait for ever.
        """
        ranks, members = self.scheduler.ranks, self.names
        of_nccl = [name for name in members if name not in self.scheduler.on_host]
        for one, other in combinations(of_nccl, 2):
            both = set(members[one]).intersection(members[other])
            kernels = [_kernels(ranks[r], (one, other)) for r in self.scheduler.played if r in both]
            for row in kernels[1:]:
                for a, b in zip(kernels[0], row, strict=False):
                    if a.group != b.group:
                        where = lines.among(members, (one, other))
                        waits = [_make_wait(a, b, where), _make_wait(b, a, where)]
                        return deadlock.from_waits(waits, (), len(ranks), _CROSSED)
        return None

    def advise(self, parked: list[Rank]) -> str:
        """If a call's counterpart was made but stands behind another call, that is why: say so."""
        for rank in parked:
            for other in self.find_cause(rank.waits).counterparts if rank.waits else ():
                lane = None if other.posted else _lane_of(other)
                if lane is None or not lane.under_way:
                    continue
                first = lane.under_way[0]
                behind, before = (lines.call_text(call.record.op) for call in (other, first))
                messages = isinstance(first, Message) and isinstance(other, Message)
                peers = {call.record.op.peer for call in (first, other)}
                return (
                    f"On a communicator, calls run one after another: on rank {other.rank.number}, "
                    f"{behind} is called, and stands behind {before}. "
                    + (_ASSUMED if messages and len(peers) == 2 else "")
                    + (_TOGETHER if messages else _SAME_ORDER)
                )
        return ""


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether torch hands a tensor to NCCL: it is contiguous, or pictures in channels_last."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    form = formats.get(tensor.dim(), torch.contiguous_format)
    return tensor.is_contiguous() or tensor.is_contiguous(memory_format=form)


def _kernels(rank: Rank, groups: tuple[str, str]) -> list[Event]:
    """The collectives in these groups that a rank asks its GPU for."""
    ops = [record.op for record in rank.records if record.op.group in groups]
    return [op for op in ops if op.is_collective and op.op not in MAKE_GROUPS]


def _make_wait(a: Event, b: Event, where: Mapping[str, str]) -> Wait:
    return Wait(a.rank, lines.call_text(a) + where[a.group], a.line, (b.rank,), a.group)


def _lane_of(call: Call) -> Lane | None:
    return call.rank.gpu.lanes.get(call.record.op.group)
