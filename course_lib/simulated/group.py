"""The process group that torch.distributed talks to in a simulated rank.

    dist.isend(x, 1)         dist.all_reduce(x)        DDP's reducer, in C++
         │                        │                         │
         └────────────► SimulatedGroup ◄────────────────────┘     one object a rank and group
                          │         │
                        Mail      Calls                           one of each a group
                     (mail.py) (collective.py)

It turns what c10d passes (lists of lists, options) into tensors that a rank gives and gets.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from course_lib import explain
from course_lib.errors import CourseError
from course_lib.simulated import compat, hazards
from course_lib.simulated.collective import Calls, CollectiveWork
from course_lib.simulated.combine import Tensors
from course_lib.simulated.mail import Mail
from course_lib.simulated.network import Fabric
from course_lib.simulated.records import Site, call_site, op_of
from course_lib.simulated.scheduler import Abandoned, Rank, Scheduler, Waitable
from course_lib.trace import Event

_ProcessGroup: Any = dist.ProcessGroup  # whose overloads nobody can match word by word


class SimulatedGroup(_ProcessGroup):
    """One rank's end of a group."""

    backend = "gloo"  # whose rules are modelled, and what dist.get_backend() answers
    supports_coalescing = False  # so batch_isend_irecv calls isend and irecv one by one
    supports_splitting = True
    bound_device_id = None

    def __init__(self, groups: Groups, rank: Rank, name: str, shared: Any) -> None:
        self.shared = shared
        self._mail, self._calls, self.members = shared
        self._me, self._size = self.members[rank.number], len(self.members)
        super().__init__(self._me, self._size)
        self._groups, self._rank, self.group_name = groups, rank, name

    # -- who we are ----------------------------------------------------------------------------

    group_name: str = ""
    group_desc = "simulated"

    @property
    def pg_name(self) -> str:
        return self.group_name

    def rank(self) -> int:
        return self._me

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return "simulated"  # not "gloo": C++ would look for a gloo backend in here

    getBackendName = _get_backend_name = name

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: Any = None) -> SimulatedGroup:
        return self

    get_backend = _get_backend

    def get_group_store(self) -> dist.Store:
        return self._groups.store

    def shutdown(self) -> None:
        """Nothing to close."""

    abort = shutdown

    def __hash__(self) -> int:
        """torch looks a group up before it calls it, and would say that there is no such group."""
        self._groups.check(self._rank)
        return id(self)

    def __repr__(self) -> str:
        return f"SimulatedGroup(rank={self._me}, size={self._size})"

    def new_group(
        self, ranks: Sequence[int], *, group_name: str, backend: Any = None, **_: Any
    ) -> SimulatedGroup | None:
        """Called by ``dist.new_group`` on the default group. A hashed name is how torch asks for
        ``use_local_synchronization``, which members call alone.
        """
        if backend and self.backend not in str(backend):
            raise RuntimeError(
                f"new_group(backend={str(backend)!r}): this world is simulated with "
                f"backend={self.backend!r}, and so are all its groups"
            )
        if not ranks:
            raise RuntimeError("new_group: a group needs at least one rank")
        return self._groups.make(
            self._rank, "new_group", group_name, ranks, not group_name.isdigit(), call_site()
        )

    def split_group(
        self, new_ranks: Sequence[int], timeout: Any = None, opts: Any = None,
        group_name: str | None = None, *_: Any, **__: Any,
    ) -> SimulatedGroup | None:  # fmt: skip
        ranks = [self._mail.ranks[r] for r in new_ranks]
        return self._groups.make(
            self._rank, "split_group", group_name or "", ranks, True, call_site()
        )

    # -- point to point ------------------------------------------------------------------------

    def send(self, tensors: Tensors, dst: int, tag: int) -> Any:
        return self._mail.send(self._rank, self._me, tensors[0], self._peer(dst), tag, call_site())

    def recv(self, tensors: Tensors, src: int, tag: int) -> Any:
        return self._mail.recv(self._rank, self._me, tensors[0], self._peer(src), tag, call_site())

    def _peer(self, rank: int) -> int:
        """``rank``, if there is such a one: −1 is what ``rank - 1`` makes of rank 0."""
        if 0 <= rank < self._size:
            return rank
        raise RuntimeError(f"there is no rank {rank}: ranks are 0 to {self._size - 1}")

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        return self._mail.recv(self._rank, self._me, tensors[0], -1, tag, call_site())

    # -- collectives ---------------------------------------------------------------------------

    def _issue(
        self, op: str, ins: Tensors, outs: Tensors, opts: Any = None, **more: Any
    ) -> CollectiveWork:
        """``opts`` are c10d's; ``more`` is for who has none: see Calls.issue."""
        if opts is not None:
            more["async_op"] = getattr(opts, "asyncOp", True)
        if hasattr(opts, "reduceOp"):
            more["reduce_op"] = str(opts.reduceOp.op).rpartition(".")[2]
        if hasattr(opts, "rootRank"):
            more["root"] = self._peer(opts.rootRank)
        site = call_site()
        return self._calls.issue(self._rank, self._me, op, ins, outs, site=site, **more)

    def allreduce(self, tensors: Tensors, opts: Any) -> Any:
        return self._issue("all_reduce", tensors, tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Any:
        return self._issue("all_reduce_coalesced", tensors, tensors, opts)

    def broadcast(self, tensors: Tensors, opts: Any) -> Any:
        return self._issue("broadcast", tensors, tensors, opts)

    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        return self._issue("reduce", tensors, tensors if opts.rootRank == self._me else [], opts)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        return self._issue("all_gather", inputs, self._sized("all_gather", outputs[0]), opts)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        outs = [out for row in outputs for out in row]
        return self._issue("all_gather_coalesced", inputs, outs, opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Any:
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        outs = self._by_rank("all_gather_single", outputs)
        return self._issue("all_gather_single", inputs, outs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        outs = self._sized("gather", outputs[0]) if opts.rootRank == self._me else []
        return self._issue("gather", inputs, outs, opts)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        ins = self._sized("scatter", inputs[0]) if opts.rootRank == self._me else []
        return self._issue("scatter", ins, outputs, opts, first=outputs[0])

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        ins = self._sized("reduce_scatter", inputs[0])
        return self._issue("reduce_scatter", ins, outputs, opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Any:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        ins = self._by_rank("reduce_scatter_single", inputs)
        return self._issue("reduce_scatter_single", ins, outputs, opts, first=inputs[0])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        ins, outs = self._sized("all_to_all", inputs), self._sized("all_to_all", outputs)
        return self._issue("all_to_all", ins, outs, opts)

    def all_to_all_single(
        self, output: torch.Tensor, input: torch.Tensor, output_sizes: list[int],
        input_sizes: list[int], opts: Any,
    ) -> Any:  # fmt: skip
        if not (output.is_contiguous() and input.is_contiguous()):
            raise RuntimeError("all_to_all_single: its input and its output must be contiguous")
        ins, outs = self._split(input, input_sizes), self._split(output, output_sizes)
        return self._issue("all_to_all_single", ins, outs, opts, first=input)

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any) -> Any:
        return self._issue("barrier", [], [], opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        self._issue("monitored_barrier", [], []).wait()

    def _by_rank(self, op: str, tensors: Tensors) -> Tensors:
        """Each tensor cut into one block a rank: all blocks of rank 0, all of rank 1, …"""
        cut = [self._sized(op, tensor.chunk(self._size)) for tensor in tensors]
        return [block for blocks in zip(*cut, strict=True) for block in blocks]

    def _sized(self, op: str, tensors: Sequence[torch.Tensor]) -> Tensors:
        if len(tensors) != self._size:
            raise ValueError(
                f"{op} needs {self._size} tensors or blocks, one per rank, not {len(tensors)}"
            )
        return list(tensors)

    def _split(self, tensor: torch.Tensor, sizes: list[int]) -> Tensors:
        if not sizes:
            if tensor.shape[0] % self._size:
                raise RuntimeError(
                    f"all_to_all_single: the first dimension, {tensor.shape[0]}, is no multiple of "
                    f"{self._size}: give the split sizes"
                )
            sizes = [tensor.shape[0] // self._size] * self._size
        return list(tensor.split(list(sizes)))


def _or_plain(ours: Any, torchs: Any) -> Any:
    """Take what torch's own method takes, as ``broadcast(tensor, 0)``: that one makes lists and
    options of it, and comes back."""
    options = {kind for name, kind in vars(compat.c10d).items() if name.endswith("Options")}
    return lambda self, *args, **named: (
        ours if args and type(args[-1]) in options else torchs
    )(self, *args, **named)  # fmt: skip


for _name, _ours in list(vars(SimulatedGroup).items()):
    if callable(_ours) and list(inspect.signature(_ours).parameters)[-1] == "opts":
        setattr(SimulatedGroup, _name, _or_plain(_ours, getattr(_ProcessGroup, _name)))


class Groups:
    """All groups of one simulation, and the order in which ranks make them."""

    mail, calls, end = Mail, Calls, SimulatedGroup

    def __init__(
        self, scheduler: Scheduler, fabric: Fabric, buffered: bool, poisons: hazards.Poisons
    ) -> None:
        self.scheduler, self.fabric = scheduler, fabric
        self.buffered, self.poisons = buffered, poisons
        self.wires = [0.0] * len(scheduler.ranks)
        self.store = compat.store()
        self.shared: dict[tuple[str, tuple[int, ...]], tuple[Mail, Calls, dict[int, int]]] = {}
        self._made: list[dict[int, tuple[tuple[int, ...], Event]]] = []  # k-th making, by rank
        self._counts = [0] * len(scheduler.ranks)
        self.world = self.join(scheduler.ranks[0], "0", range(len(scheduler.ranks))).shared

    def check(self, rank: Rank) -> None:
        """Raise if this rank's groups may not be used now."""
        self.scheduler.check(rank)

    @property
    def names(self) -> dict[str, tuple[int, ...]]:
        """Each group's ranks, by the name that its Events carry."""
        return {mail.name: tuple(mail.ranks) for mail, _, _ in self.shared.values()}

    def join(self, rank: Rank, name: str, ranks: Sequence[int]) -> SimulatedGroup:
        """This rank's own object for a group."""
        key = (name, tuple(ranks))
        if key not in self.shared:
            taken = any(n == name for n, _ in self.shared)  # split_group: equal names, other ranks
            label = f"{name}:{ranks[0]}" if taken else name
            args = (self.scheduler, self.fabric, label, key[1])
            self.shared[key] = (
                self.mail(*args, self.buffered, self.poisons),
                self.calls(*args, self.wires, self.poisons),
                {r: i for i, r in enumerate(ranks)},
            )
        return self.end(self, rank, name, self.shared[key])

    def make(
        self, rank: Rank, op: str, name: str, ranks: Sequence[int], local: bool, site: Site
    ) -> Any:
        """This rank's part in ``new_group`` or ``split_group``; None if it is no member.

        All ranks of the world make groups in the same order, unless the call is ``local``.
        Members wait for one another, as gloo's do.
        """
        if not local:
            self._compare(rank, op, tuple(ranks), site)
        if rank.number not in ranks:
            return None
        group = self.join(rank, name, ranks)
        _, calls, members = group.shared
        calls.issue(
            rank, members[rank.number], op, [], [], site=site, group=self.world[0].name
        ).wait()
        return group

    def _compare(self, rank: Rank, name: str, ranks: tuple[int, ...], site: Site) -> None:
        k = self._counts[rank.number]
        self._counts[rank.number] += 1
        if k == len(self._made):
            self._made.append({})
        op = op_of(name, rank.number, None, self.world[0].name, 0, 0, None, site)
        if rank.number not in ranks:
            self.scheduler.note(rank, op)
        for theirs, other in self._made[k].values():
            if theirs != ranks:
                pairs = (other, theirs), (op, ranks)
                events = [replace(o, group=str(list(r))) for o, r in pairs]
                self.scheduler.fail(explain.groups_differ(*events))
                raise Abandoned
        self._made[k][rank.number] = (ranks, op)

    def cause(self, work: Waitable) -> Waitable:
        """What a rank that waits for this call waits for in the end."""
        return work

    def advice(self, parked: list[Rank]) -> str:
        """What to tell ranks that wait for one another, if there is more to say than usual."""
        return ""

    def unfinished(self) -> CourseError | None:
        """The error if some ranks made a group that others never made."""
        for made in self._made:
            others = [r.number for r in self.scheduler.ranks if r.number not in made]
            if others:
                _, op = made[min(made)]
                return explain.absent(op, others)
        return None
