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

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from course_lib.diagnosis import explain
from course_lib.errors import CourseError
from course_lib.simulated.ends.poison import Poisons
from course_lib.simulated.exchange.collective import Calls, CollectiveWork
from course_lib.simulated.exchange.combine import Tensors, refuse_memory
from course_lib.simulated.exchange.mail import Mail
from course_lib.simulated.isolation import compat
from course_lib.simulated.network import Fabric
from course_lib.simulated.rank import Rank, Waitable
from course_lib.simulated.records import Site, call_site, op_of
from course_lib.simulated.scheduler import Scheduler
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
        self,
        new_ranks: Sequence[int],
        timeout: Any = None,
        opts: Any = None,
        group_name: str | None = None,
        *_: Any,
        **__: Any,
    ) -> SimulatedGroup | None:
        ranks = [self._mail.ranks[r] for r in new_ranks]
        return self._groups.make(
            self._rank, "split_group", group_name or "", ranks, True, call_site()
        )

    # -- point to point ------------------------------------------------------------------------

    def send(self, tensors: Tensors, dst: int, tag: int) -> Any:
        if compat.function_modes():
            return compat.outside_of_modes(self.send, tensors, dst, tag)
        return self._mail.send(self._rank, self._me, tensors[0], self._peer(dst), tag, call_site())

    def recv(self, tensors: Tensors, src: int, tag: int) -> Any:
        if compat.function_modes():
            return compat.outside_of_modes(self.recv, tensors, src, tag)
        return self._mail.recv(self._rank, self._me, tensors[0], self._peer(src), tag, call_site())

    def _peer(self, rank: int) -> int:
        """``rank``, if there is such a one: −1 is what ``rank - 1`` makes of rank 0."""
        if 0 <= rank < self._size:
            return rank
        raise RuntimeError(f"there is no rank {rank}: ranks are 0 to {self._size - 1}")

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        if compat.function_modes():
            return compat.outside_of_modes(self.recv_anysource, tensors, tag)
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

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        self._issue("monitored_barrier", [], []).wait()

    def of_root(self, opts: Any, tensors: list[Tensors]) -> Tensors:
        """What only the root has; the others pass a list without it."""
        return tensors[0] if opts.rootRank == self._me else []

    def by_rank(self, *tensors: torch.Tensor) -> Tensors:
        """Each tensor cut into one block a rank: all blocks of rank 0, all of rank 1, …"""
        cut = (tensor.chunk(self._size) for tensor in tensors)
        return [block for blocks in zip(*cut, strict=False) for block in blocks]

    def split(self, tensor: torch.Tensor, sizes: list[int]) -> Tensors:
        if not tensor.is_contiguous():
            raise RuntimeError("all_to_all_single: its input and its output must be contiguous")
        if not sizes:
            if tensor.shape[0] % self._size:
                raise RuntimeError(
                    f"all_to_all_single: the first dimension, {tensor.shape[0]}, is no multiple of "
                    f"{self._size}: give the split sizes"
                )
            sizes = [tensor.shape[0] // self._size] * self._size
        return list(tensor.split(list(sizes)))


# What a call is named in torch.distributed and in c10d, and, of what c10d passes, what a rank gives
# and what it gets; third the tensor to write down where that is not the first of them.
_COLLECTIVES: list[tuple[str, str, Callable[..., tuple]]] = [
    ("all_reduce", "allreduce", lambda g, x, _: (x, x)),
    ("all_reduce_coalesced", "allreduce_coalesced", lambda g, x, _: (x, x)),
    ("broadcast", "broadcast", lambda g, x, _: (x, x)),
    ("reduce", "reduce", lambda g, x, opts: (x, g.of_root(opts, [x]))),
    ("all_gather", "allgather", lambda g, out, x, _: (x, out[0])),
    (
        "all_gather_coalesced",
        "allgather_coalesced",
        lambda g, out, x, _: (x, [t for row in out for t in row]),
    ),
    (
        "all_gather_single",
        "all_gather_single _allgather_base",
        lambda g, out, x, _: ([x], g.by_rank(out)),
    ),
    (
        "all_gather_single",
        "all_gather_single_coalesced allgather_into_tensor_coalesced",
        lambda g, out, x, _: (x, g.by_rank(*out)),
    ),
    ("gather", "gather", lambda g, out, x, opts: (x, g.of_root(opts, out))),
    ("scatter", "scatter", lambda g, out, x, opts: (g.of_root(opts, x), out, out[0])),
    ("reduce_scatter", "reduce_scatter", lambda g, out, x, _: (x[0], out)),
    (
        "reduce_scatter_single",
        "reduce_scatter_single _reduce_scatter_base",
        lambda g, out, x, _: (g.by_rank(x), [out], x),
    ),
    (
        "reduce_scatter_single",
        "reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced",
        lambda g, out, x, _: (g.by_rank(*x), out, x[0]),
    ),
    ("all_to_all", "alltoall", lambda g, out, x, _: (x, out)),
    (
        "all_to_all_single",
        "all_to_all_single alltoall_base",
        lambda g, out, x, out_sizes, sizes, _: (g.split(x, sizes), g.split(out, out_sizes), x),
    ),
    ("barrier", "barrier", lambda g, _: ([], [])),
]
_OPTIONS = {kind for name, kind in vars(compat.c10d).items() if name.endswith("Options")}


def _flat(args: Any) -> Iterator[torch.Tensor]:
    """The tensors in lists of lists."""
    for arg in args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from _flat(arg)


def _method(op: str, name: str, sides: Callable[..., tuple]) -> Callable[..., Any]:
    torchs = getattr(_ProcessGroup, name)

    def call(self: SimulatedGroup, *args: Any, **named: Any) -> Any:
        if not args or type(args[-1]) not in _OPTIONS:  # plain ones, as broadcast(tensor, 0) has
            return torchs(self, *args, **named)  # makes lists and options of them, and comes back
        if compat.dispatch_modes() or compat.function_modes():
            return compat.outside_of_modes(call, self, *args)
        refuse_memory(self.backend, op, _flat(args[:-1]))
        ins, outs, *first = sides(self, *args)
        return self._issue(op, list(ins), list(outs), args[-1], first=first[0] if first else None)

    return call


for _op, _names, _sides in _COLLECTIVES:
    for _name in _names.split():
        setattr(SimulatedGroup, _name, _method(_op, _name, _sides))


def name_of(rank: Rank, name: str) -> str:
    """A group's name in the trace; torch counts anew after destroy_process_group()."""
    return f"{name}#{rank.worlds}" if rank.worlds > 1 else name


class Groups:
    """All groups of one simulation, and the order in which ranks make them."""

    mail, calls, end = Mail, Calls, SimulatedGroup

    def __init__(
        self, scheduler: Scheduler, fabric: Fabric, buffered: bool, poisons: Poisons
    ) -> None:
        self.scheduler, self.fabric, self.buffered = scheduler, fabric, buffered
        self.init = True  # whether the default group is there before the function begins
        self.wires, self.store, self.poisons = [0.0] * len(scheduler.ranks), compat.store(), poisons
        self.shared: dict[tuple[str, tuple[int, ...]], tuple[Mail, Calls, dict[int, int]]] = {}
        self._made: list[dict[int, tuple[tuple[int, ...], Event]]] = []  # k-th making, by rank
        self._counts = [0] * len(scheduler.ranks)
        self.world = self.join(scheduler.ranks[0], "0", range(len(scheduler.ranks))).shared
        self.tables: defaultdict[object, dict[str, bytes]] = defaultdict(dict)  # see store.py

    def check(self, rank: Rank) -> None:
        """Raise if this rank's groups may not be used now."""
        self.scheduler.check(rank)

    @property
    def names(self) -> dict[str, tuple[int, ...]]:
        """Each group's ranks, by the name that its Events carry."""
        return {mail.name: tuple(mail.ranks) for mail, _, _ in self.shared.values()}

    def form(self, rank: Rank) -> SimulatedGroup:
        """The rank's end of a new default group; its groups from now on are those of this world."""
        rank.worlds += 1
        return self.join(rank, "0", range(len(self.scheduler.ranks)))

    def formed_for(self, rank: Rank) -> bool:
        """Whether the rank's default group is the one that was there before its function began."""
        return self.init and rank.worlds == 1

    def form_again(self, rank: Rank, backend: str) -> SimulatedGroup:
        """What ``init_process_group`` asks for."""
        ours = self.end.backend
        if backend != "undefined" and ours not in backend:  # as in "cpu:gloo,cuda:nccl"
            raise RuntimeError(
                f"init_process_group({backend!r}): this world is simulated with backend={ours!r}, "
                "which simulate() takes as an argument"
            )
        self._compare(rank, "init_process_group", tuple(self.world[0].ranks), call_site())
        return self.form(rank)

    def join(self, rank: Rank, name: str, ranks: Sequence[int]) -> SimulatedGroup:
        """This rank's own object for a group."""
        known = name_of(rank, name)
        key = (known, tuple(ranks))
        if key not in self.shared:
            taken = any(n == known for n, _ in self.shared)  # split_group: equal names, other ranks
            label = f"{known}:{ranks[0]}" if taken else known
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
            rank, members[rank.number], op, [], [], site=site, group=name_of(rank, "0")
        ).wait()
        return group

    def _compare(self, rank: Rank, name: str, ranks: tuple[int, ...], site: Site) -> None:
        k = self._counts[rank.number]
        self._counts[rank.number] += 1
        if k == len(self._made):
            self._made.append({})
        op = op_of(name, rank.number, None, name_of(rank, "0"), 0, 0, None, site)
        if rank.number not in ranks:
            self.scheduler.note(rank, op)
        for theirs, other in self._made[k].values():
            if theirs != ranks:
                pairs = (other, theirs), (op, ranks)
                events = [replace(o, group=str(list(r))) for o, r in pairs]
                self.scheduler.fail(explain.groups_differ(*events))
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
