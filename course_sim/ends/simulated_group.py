"""The process group that torch.distributed talks to in a simulated rank.

    dist.isend(x, 1)         dist.all_reduce(x)        DDP's reducer, in C++
         │                        │                         │
         └────────────► SimulatedGroup ◄────────────────────┘     one object a rank and group
                             │
                          Channel                                 one a group: exchange/groups.py

It turns what c10d passes (lists of lists, options) into tensors that a rank gives and gets, and
these into what an exchange takes. It does not know whose exchange that is: see far.py of grading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from course_lib.collectives import OP_OF_METHOD
from course_sim import tensor_memory as memory
from course_sim.ends import works
from course_sim.exchange.combine import Passed, Tensors
from course_sim.isolation import compat
from course_sim.isolation.packages import note_question
from course_sim.records import Site, call_site

# Only timeouts up to 2 s are modelled: under run(), a deadlock is reported before longer ones
# expire.
_SHORT = timedelta(seconds=2)
_ProcessGroup: Any = dist.ProcessGroup  # whose overloads nobody can match word by word


class SimulatedGroup(_ProcessGroup):
    """One rank's end of a group."""

    backend = "gloo"  # whose rules are modelled, and what dist.get_backend() answers
    supports_coalescing = False  # so batch_isend_irecv calls isend and irecv one by one
    supports_splitting = True
    bound_device_id = None
    read = staticmethod(memory.raw)  # what is sent of a tensor
    recv_work = works.RecvWork
    collective_work = works.CollectiveWork
    options = SimpleNamespace(_timeout=dist.constants.default_pg_timeout)  # pipelines ask for it

    def __init__(
        self, groups: Any, rank: Any, name: str, channel: Any, timeout: timedelta | None = None
    ) -> None:
        """``groups``, ``rank`` and ``channel`` are exchange.Groups, Rank and exchange.Channel, or
        what stands for them where the exchange is elsewhere.
        """
        self._channel, self._mail = channel, channel.mail
        self._me = channel.members[rank.number]
        self._size = len(channel.members)
        super().__init__(self._me, self._size)
        self._groups = groups
        self._rank = rank
        self.group_name = name
        self._own_timeout = _keep_if_short(timeout)  # of its calls
        # asynchronous calls of the whole group, until they are over
        self._under_way: dict[works.CollectiveWork, None] = {}

    # -- who we are ----------------------------------------------------------------------------

    group_name: str = ""
    group_desc = "simulated"

    def rank(self) -> int:
        note_question()
        return self._me

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return "simulated"  # not "gloo": C++ would look for a gloo backend in here

    getBackendName = _get_backend_name = name

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cuda" if self._rank.says_cuda else "cpu")]

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
        self, ranks: Sequence[int], *, group_name: str, backend: Any, timeout: Any, **_: Any
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
        return self._make_group("new_group", group_name, ranks, not group_name.isdigit(), timeout)

    def split_group(
        self, ranks: Sequence[int], *, group_name: str, timeout: Any, **_: Any
    ) -> SimulatedGroup | None:
        members = [self._channel.ranks[r] for r in ranks]
        return self._make_group("split_group", group_name, members, True, timeout)

    def _make_group(
        self, op: str, name: str, ranks: Sequence[int], local: bool, timeout: timedelta | None
    ) -> SimulatedGroup | None:
        channel = self._groups.make(self._rank, op, name, ranks, local, call_site())
        return channel and type(self)(self._groups, self._rank, name, channel, timeout)

    # -- point to point ------------------------------------------------------------------------

    def send(self, tensors: Tensors, dst: int, tag: int) -> Any:
        if compat.function_modes():
            return compat.outside_of_modes(self.send, tensors, dst, tag)
        return self._send(tensors[0], self._peer(dst), tag, call_site())

    def recv(self, tensors: Tensors, src: int, tag: int) -> Any:
        if compat.function_modes():
            return compat.outside_of_modes(self.recv, tensors, src, tag)
        return self._recv(tensors[0], self._peer(src), tag, call_site())

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        return compat.outside_of_modes(self._recv, tensors[0], -1, tag, call_site())

    def _peer(self, rank: int) -> int:
        """``rank``, if there is such a one: −1 is what ``rank - 1`` makes of rank 0."""
        if 0 <= rank < self._size:
            return rank
        raise RuntimeError(f"there is no rank {rank}: ranks are 0 to {self._size - 1}")

    def _send(self, tensor: torch.Tensor, dst: int, tag: int, site: Site) -> works.SendWork:
        """Send what the tensor holds now; its Work guards the tensor until ``wait()``."""
        memory.refuse_scattered("send", tensor)
        data = self.read(tensor)
        call = self._mail.send(self._rank, tensor, data, dst, tag, site)
        sent = None if site.blocking or not data else data
        buffers = self._rank.buffers
        return works.SendWork(call, self._own_timeout, tensor, buffers, sent, self.backend)

    def _recv(self, tensor: torch.Tensor, src: int, tag: int, site: Site) -> works.RecvWork:
        """Receive into a tensor, which holds poison until ``wait()`` if the user gets the Work."""
        memory.refuse_scattered("recv", tensor)
        call = self._mail.recv(self._rank, tensor, src, tag, site)
        buffers = self._rank.buffers
        in_users_hands = site.direct and not site.blocking
        held = buffers.put(tensor) if in_users_hands else None
        return self.recv_work(call, self._own_timeout, tensor, buffers, held, self.backend)

    # -- collectives ---------------------------------------------------------------------------

    def _issue(
        self, op: str, ins: Tensors, outs: Tensors, opts: Any = None, **more: Any
    ) -> works.CollectiveWork:
        """Make a call of the whole group. ``opts`` are c10d's options; a call without them gives
        the fields of Passed as ``more``.
        """
        if opts is not None:
            more["async_op"] = getattr(opts, "asyncOp", True)
        if hasattr(opts, "reduceOp"):
            more["reduce_op"], factor = _read_reduce_op(opts.reduceOp)
            if factor is not None and self.backend == "nccl":
                more["reduce_op"], ins = "SUM", [x.detach() * factor for x in ins]
        if hasattr(opts, "rootRank"):
            more["root"] = self._peer(opts.rootRank)
        passed = Passed(op, ins, outs, call_site(), **more)
        make = self.collective_work
        if self.backend == "gloo" and op.startswith("reduce_scatter"):
            make = works.WorkWithoutFuture
        return make(self._channel, self._rank, self._own_timeout, passed, self._under_way)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """``timeout`` is rank 0's alone, as on gloo: the others wait as long as the group does."""
        self._issue("monitored_barrier", [], []).wait(None if self._me else _keep_if_short(timeout))

    def only_on_root(self, opts: Any, tensors: list[Tensors]) -> Tensors:
        """What only the root has; the others pass a list without it."""
        return tensors[0] if opts.rootRank == self._me else []

    def blocks(self, *tensors: torch.Tensor) -> Tensors:
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


def _keep_if_short(timeout: timedelta | None) -> timedelta | None:
    """The timeout where it is short, or None."""
    return timeout if timeout is not None and timeout <= _SHORT else None


def _read_reduce_op(op: Any) -> tuple[str, Any]:
    """Its name, and what PREMUL_SUM multiplies by before it sums, which no attribute tells."""
    return str(op.op).rpartition(".")[2], op.__getstate__()[1]


def _list(tensors: Any) -> Tensors:
    """One tensor, or those of a coalesced call."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


# From what c10d passes: the tensors that a rank gives, those that it gets, and, if it is not the
# first of these, the tensor whose dtype and shape the Event shows.
_SIDES: dict[str, Callable[..., tuple]] = {
    "all_reduce": lambda g, x, _: (x, x),
    "all_reduce_coalesced": lambda g, x, _: (x, x),
    "broadcast": lambda g, x, _: (x, x),
    "reduce": lambda g, x, opts: (x, g.only_on_root(opts, [x])),
    "all_gather": lambda g, out, x, _: (x, out[0]),
    "all_gather_coalesced": lambda g, out, x, _: (x, [t for row in out for t in row]),
    "all_gather_single": lambda g, out, x, _: (_list(x), g.blocks(*_list(out))),
    "gather": lambda g, out, x, opts: (x, g.only_on_root(opts, out)),
    "scatter": lambda g, out, x, opts: (g.only_on_root(opts, x), out),
    "reduce_scatter": lambda g, out, x, _: (x[0], out),
    "reduce_scatter_single": lambda g, out, x, _: (g.blocks(*_list(x)), _list(out), _list(x)[0]),
    "all_to_all": lambda g, out, x, _: (x, out),
    "all_to_all_single": lambda g, out, x, out_sizes, sizes, _: (
        g.split(x, sizes),
        g.split(out, out_sizes),
        x,
    ),
    "barrier": lambda g, _: ([], []),
}
_OPTIONS = {kind for name, kind in vars(compat.c10d).items() if name.endswith("Options")}


def _make_method(op: str, name: str, sides: Callable[..., tuple]) -> Callable[..., Any]:
    """A method of ProcessGroup that makes a call of the whole group; see _SIDES."""
    torchs = getattr(_ProcessGroup, name)

    def call(self: SimulatedGroup, *args: Any, **named: Any) -> Any:
        if not args or type(args[-1]) not in _OPTIONS:  # plain ones, as broadcast(tensor, 0) has
            return torchs(self, *args, **named)  # makes lists and options of them, and comes back
        if compat.dispatch_modes() or compat.function_modes():
            return compat.outside_of_modes(call, self, *args)
        memory.refuse_memory(self.backend, op, memory.list_tensors(args[:-1]))
        ins, outs, *first = sides(self, *args)
        return self._issue(op, list(ins), list(outs), args[-1], first=first[0] if first else None)

    return call


for _name, _op in OP_OF_METHOD.items():
    if _name != "gather_single":  # which gloo has not
        setattr(SimulatedGroup, _name, _make_method(_op, _name, _SIDES[_op]))
