"""Writes down what a rank says, at the moment it says it.

Three sources, joined in one log record per call:

    c10d's pre-hook     what is issued: op, tensors, root or peer, of Python and of C++ callers
    c10d's post-hook    the Work that stands for it
    thin wrappers       what the hooks do not say: tag, reduce op, whose call it is, new groups

Completion is written when somebody waits for the Work, or, for asynchronous collectives, when
their future says so. The hooks exist since torch 2.14; without them ``unavailable()`` says so,
and runs go on unrecorded.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from course_lib.ranks.log import Writer
from course_lib.sites import find_line, is_readers
from course_lib.trace import Line

# HookOpName → the name that a reader of torch.distributed's documentation knows.
OPS = {
    "SEND": "send", "RECV": "recv", "BROADCAST": "broadcast", "ALLREDUCE": "all_reduce",
    "REDUCE": "reduce", "ALLGATHER": "all_gather", "REDUCE_SCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all", "BARRIER": "barrier", "SCATTER": "scatter", "GATHER": "gather",
    "ALLREDUCE_COALESCED": "all_reduce_coalesced", "ALLGATHER_COALESCED": "all_gather_coalesced",
    "ALLGATHER_BASE": "all_gather_single", "REDUCE_SCATTER_BASE": "reduce_scatter_single",
    "ALLTOALL_BASE": "all_to_all_single",
}  # fmt: skip
_CALLS = (
    "send", "recv", "isend", "irecv", "batch_isend_irecv", "broadcast", "all_reduce", "reduce",
    "all_gather", "all_gather_single", "all_gather_into_tensor", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "all_to_all",
    "all_to_all_single", "barrier", "monitored_barrier", "broadcast_object_list",
    "all_gather_object", "gather_object", "scatter_object_list",
)  # fmt: skip
_GROUP_MAKERS = ("init_process_group", "new_group", "split_group")
_HOOK = 0xC0E5  # our id among a group's hooks
_get_future = dist.Work.get_future


def unavailable() -> str | None:
    """Why nothing can be recorded with this torch, or None if it can."""
    if hasattr(dist.ProcessGroup, "register_pre_hook"):
        return None
    return (
        f"nothing was recorded: torch {torch.__version__} has no hooks on process groups "
        "(they came with 2.14)"
    )


@functools.cache
def _op(name: Any) -> str:
    return OPS.get(name.name, name.name.lower())


class _Call(threading.local):
    """What the wrapper around the current call knows, for the hook that fires inside it."""

    depth = 0
    direct = False  # called by the reader's own code, who gets the Work
    blocking = False
    tag = 0
    reduce_op: str | None = None


_call = _Call()
_recorder: Recorder | None = None


class Recorder:
    """One rank's. It is made ready with the rank, and records from ``begin`` on."""

    def __init__(self, fd: int) -> None:
        self.t0 = 0.0
        self._log = Writer(fd)
        self._wait_means_done = True
        self._main = threading.main_thread().ident
        self._lock = threading.Lock()
        self._count = 0
        self._pending: dict[tuple[str, int], int] = {}  # between pre-hook and post-hook
        # Works nobody has waited for yet, kept alive so that Python meets the same object again:
        self._live: dict[int, tuple[Any, int, tuple[int, ...]]] = {}
        self._lines: dict[Line, int] = {}
        self._groups: dict[str, tuple[int, ...]] = {}

    def now(self) -> float:
        return time.perf_counter() - self.t0

    # -- writing ------------------------------------------------------------------------------

    def issued(
        self,
        op: str,
        group: str,
        peer: int | None,
        reads: Any,
        writes: Any,
        is_async: bool,
        shape: tuple[int, ...] = (),
    ) -> int:
        first = reads[0] if reads else writes[0] if writes else None
        line = self._line()
        bytes_in = sum(t.nbytes for t in reads)
        bytes_out = sum(t.nbytes for t in writes)
        packed = all(t.is_contiguous() or _is_dense(t) for t in (*reads, *writes))
        if _call.direct and threading.get_ident() != self._main:
            self._log.append(("T",))
        with self._lock:
            seq = self._count
            self._count += 1
        call = _call
        self._log.append((
            "E", seq, op, -1 if peer is None else peer, group, bytes_in, bytes_out,
            None if first is None else str(first.dtype).removeprefix("torch."),
            shape if first is None else tuple(first.shape), self.now(), line, call.tag,
            call.reduce_op, is_async and not call.blocking, call.direct, packed,
        ))  # fmt: skip
        return seq

    def completed(self, seq: int, peer: int | None = None, waited: bool = True) -> None:
        at = self.now() if self._wait_means_done else None
        self._log.append(("C", seq, at, -1 if peer is None else peer, waited))

    def span(self, name: str, start: float, end: float) -> None:
        self._log.append(("S", name, start, end))

    def _line(self) -> int:
        line = find_line(3)
        if line is None:
            return -1
        number = self._lines.get(line)
        if number is None:
            number = self._lines[line] = len(self._lines)
            self._log.append(("L", number, line.where, line.number, line.source, line.function))
        return number

    # -- groups and hooks ---------------------------------------------------------------------

    def watch(self, group: Any) -> None:
        """Record everything that is said in this group from now on."""
        if not isinstance(group, dist.ProcessGroup) or group.group_name in self._groups:
            return
        name, ranks = group.group_name, tuple(dist.get_process_group_ranks(group))
        if dist.get_backend(group) == "nccl":
            self._wait_means_done = False  # there, wait() orders streams and returns at once
        self._groups[name] = ranks
        self._log.append(("G", name, ranks))
        if unavailable() is None:
            group.register_pre_hook(_HOOK, functools.partial(self._before, name, ranks))
            group.register_post_hook(_HOOK, functools.partial(self._after, name, ranks))

    def _before(self, group: str, ranks: tuple[int, ...], args: Any) -> None:
        op = _op(args.name)
        peer = ranks[args.root] if args.root >= 0 else None
        seq = self.issued(op, group, peer, args.input_tensors, args.output_tensors, args.async_op)
        self._pending[group, args.op_id] = seq

    def _after(self, group: str, ranks: tuple[int, ...], args: Any) -> None:
        seq = self._pending.pop((group, args.op_id))
        work = args.work
        if work is None:
            self.completed(seq)
            return
        op = _op(args.name)
        self._live[id(work)] = (work, seq, ranks if op == "recv" else ())
        collective = op not in ("send", "recv")
        if args.async_op and collective and not torch.cuda.is_initialized():
            self._tell_when_done(work, seq, None if _call.direct else id(work))

    def _tell_when_done(self, work: Any, seq: int, key: int | None) -> None:
        try:
            future = _get_future(work)
        except RuntimeError:  # some of gloo's have none (reduce_scatter): only wait() will tell
            return
        future.then(functools.partial(self._done, seq, key))

    def _done(self, seq: int, key: int | None, _future: Any) -> None:
        """An asynchronous collective is done; nobody may ever wait for one of torch's own."""
        self.completed(seq, waited=False)
        if key is not None:
            self._live.pop(key, None)

    def waiting(self, work: Any) -> None:
        """Somebody begins to wait for this Work; if that never ends, here is where it stood."""
        if _call.depth or threading.get_ident() != self._main:
            return  # inside a blocking call: its own record says where it stands
        entry = self._live.get(id(work))
        if entry is not None:
            self._log.append(("W", entry[1], self._line()))

    def waited(self, work: Any) -> None:
        """Somebody's ``wait()`` on this Work has returned."""
        entry = self._live.pop(id(work), None)
        if entry is not None:
            _, seq, ranks = entry
            self.completed(seq, ranks[work._source_rank()] if ranks else None)

    def taken(self, work: Any) -> None:
        """Somebody took this Work's future, or heard that it is complete: as good as waiting."""
        entry = self._live.get(id(work))
        if entry is not None:
            self._log.append(("F", entry[1]))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie side by side in some order, as those of a transpose do."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous()


# ---- the wrappers ---------------------------------------------------------------------------


def install() -> None:
    """Put the wrappers in place, once per process. They do nothing until a Recorder begins."""
    if hasattr(dist.Work.wait, "__wrapped__"):
        return  # a fork has inherited them
    for name in _CALLS:
        if hasattr(c10d, name):
            _replace(name, _wrap_call(name, getattr(c10d, name)))
    for name in _GROUP_MAKERS:
        if hasattr(c10d, name):
            _replace(name, _wrap_maker(getattr(c10d, name)))
    dist.Work.wait = _wrap_wait(dist.Work.wait)  # type: ignore[method-assign]
    dist.Work.get_future = _wrap_future(dist.Work.get_future)  # type: ignore[method-assign]
    dist.Work.is_completed = _wrap_completed(dist.Work.is_completed)  # type: ignore[method-assign]
    os.register_at_fork(after_in_child=stop)  # a rank's own children are not the rank


def begin(recorder: Recorder, t0: float) -> None:
    """Record everything that this process says from now on; ``t0`` on the clock counts as 0."""
    global _recorder
    recorder.t0 = t0
    if dist.is_initialized():
        recorder.watch(dist.group.WORLD)
    _recorder = recorder


def stop() -> None:
    """Record no more in this process."""
    resume(None)


def resume(recorder: Recorder | None) -> None:
    """Record with this Recorder again, which has begun before."""
    global _recorder
    _recorder = recorder


def current() -> Recorder | None:
    """The Recorder that is at work in this process."""
    return _recorder


def _replace(name: str, wrapper: Callable) -> None:
    """Give every module of torch.distributed that holds the function the wrapper instead."""
    original = getattr(c10d, name)
    for module_name, module in list(sys.modules.items()):
        torchs = module_name.startswith("torch.distributed")
        if torchs and module.__dict__.get(name) is original:
            setattr(module, name, wrapper)


def _argument(function: Callable, name: str) -> Callable[[tuple, dict], Any]:
    """How to find one argument of a call, wherever it was put."""
    parameters = list(inspect.signature(function).parameters.values())
    for at, parameter in enumerate(parameters):
        if parameter.name == name:
            default = parameter.default
            return lambda a, k: a[at] if len(a) > at else k.get(name, default)
    return lambda a, k: None


def _wrap_call(name: str, function: Callable) -> Callable:
    tag_of, op_of = _argument(function, "tag"), _argument(function, "op")
    peer_of = _argument(function, "dst" if "send" in name else "src")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _recorder is None:
            return function(*args, **kwargs)
        peer = peer_of(args, kwargs)
        if isinstance(peer, int) and peer < 0:  # gloo would take it for somebody, and wait
            last = dist.get_world_size() - 1
            raise RuntimeError(f"there is no rank {peer}: ranks are 0 to {last}")
        if _call.depth:  # batch_isend_irecv calls isend and irecv, each with its own tag
            _call.tag = tag_of(args, kwargs) or 0
            return function(*args, **kwargs)
        _call.depth = 1
        _call.direct = is_readers(sys._getframe(1).f_code.co_filename)
        _call.blocking = name in ("send", "recv")
        _call.tag = tag_of(args, kwargs) or 0
        op = op_of(args, kwargs)
        _call.reduce_op = None if op is None else str(op).rpartition(".")[2]
        try:
            if name == "monitored_barrier":
                return _recorded_barrier(function, args, kwargs)
            return function(*args, **kwargs)
        finally:
            _call.depth, _call.direct, _call.blocking = 0, False, False
            _call.tag, _call.reduce_op = 0, None

    return call


def _recorded_barrier(function: Callable, args: tuple, kwargs: dict) -> Any:
    """``monitored_barrier`` passes no hook: write it down around the call."""
    assert _recorder is not None
    group: Any = (args[0] if args else kwargs.get("group")) or dist.group.WORLD
    seq = _recorder.issued("monitored_barrier", group.group_name, None, (), (), False)
    result = function(*args, **kwargs)
    _recorder.completed(seq)
    return result


def _wrap_maker(function: Callable) -> Callable:
    ranks_of = _argument(function, "ranks")

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        if _recorder is None:
            return function(*args, **kwargs)
        world = dist.group.WORLD if dist.is_initialized() else None
        seq = None
        alone = kwargs.get("use_local_synchronization")  # then only members call it
        if world is not None and function.__name__ != "init_process_group" and not alone:
            members = ranks_of(args, kwargs) if function.__name__ == "new_group" else None
            seq = _recorder.issued(
                function.__name__, world.group_name, None, (), (), False, tuple(members or ())
            )
        made = function(*args, **kwargs)
        if seq is not None:
            _recorder.completed(seq)
        groups: Iterable[Any] = made if isinstance(made, (list, tuple)) else [made]
        for group in (dist.group.WORLD, *groups):
            _recorder.watch(group)
        return made

    return make


def _wrap_wait(wait: Callable) -> Callable:
    @functools.wraps(wait)
    def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _recorder is not None:
            _recorder.waiting(self)
        result = wait(self, *args, **kwargs)
        if _recorder is not None:
            _recorder.waited(self)
        return result

    return waiting


def _wrap_future(get_future: Callable) -> Callable:
    @functools.wraps(get_future)
    def future(self: Any) -> Any:
        if _recorder is not None:
            _recorder.taken(self)
        return get_future(self)

    return future


def _wrap_completed(is_completed: Callable) -> Callable:
    @functools.wraps(is_completed)
    def completed(self: Any) -> bool:
        done = is_completed(self)
        if done and _recorder is not None:
            _recorder.taken(self)
        return done

    return completed
