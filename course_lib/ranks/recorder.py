"""Writes down what a rank says, at the moment it says it.

Three sources, joined in one log record per call:

    c10d's pre-hook     what is issued: op, tensors, root or peer, of Python and of C++ callers
    c10d's post-hook    the Work that stands for it
    the wrappers        what the hooks do not say: tag, reduce op, whose call it is, new groups

Completion is written when somebody waits for the Work, or, for asynchronous collectives, when
their future says so. The hooks exist since torch 2.14; without them ``unavailable()`` says so,
and runs go on unrecorded.
"""

from __future__ import annotations

import functools
import threading
import time
from math import nan
from types import CodeType, FrameType
from typing import Any

import torch
import torch.distributed as dist

from course_lib.ranks.log import Writer
from course_lib.user_code import find_frame, is_user_code, line_of

# HookOpName → the name that a reader of torch.distributed's documentation knows, where it is not
# the same in small letters.
OPS = {
    "ALLREDUCE": "all_reduce", "ALLREDUCE_COALESCED": "all_reduce_coalesced",
    "ALLGATHER": "all_gather", "ALLGATHER_COALESCED": "all_gather_coalesced",
    "ALLGATHER_BASE": "all_gather_single", "ALLGATHER_INTO_TENSOR_COALESCED": "all_gather_single",
    "REDUCE_SCATTER_TENSOR_COALESCED": "reduce_scatter_single", "ALLTOALL": "all_to_all",
    "REDUCE_SCATTER_BASE": "reduce_scatter_single", "ALLTOALL_BASE": "all_to_all_single",
}  # fmt: skip
_HOOK = 0xC0E5  # our id among a group's hooks
_KINDS = 4096  # of calls, that are told apart by a number; then numbering begins anew
_get_future = dist.Work.get_future
_thread = threading.get_ident


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


class Call:
    """What the wrapper around a thread's current call knows, for the hooks that fire inside it."""

    def __init__(self) -> None:
        self.caller: FrameType | None = None  # who calls; None while nobody does
        self.op: str | None = None  # None: the hook will say
        self.blocking = False
        self.tag = 0
        self.reduce_op: Any = None
        self.mine = False  # whether the reader's own code calls, who gets the Work; else a library
        self.seq = -1  # of the event that is done when the call returns, if there is one
        self.asked = -1  # of the event that torch is yet to accept, between pre- and post-hook


class _Speaking(threading.local):
    def __init__(self) -> None:
        self.call = Call()


speaking = _Speaking()
at_work: Recorder | None = None


class Recorder:
    """One rank's. It is made ready with the rank, and records from ``begin`` on."""

    def __init__(self, fd: int) -> None:
        self.t0 = 0.0
        self._log = Writer(fd)
        self._wait_means_done = True
        self._main = threading.main_thread().ident
        self._count = 0
        self._kinds: dict[tuple, int] = {}  # what calls from one line have in common, once
        self._pending: dict[tuple[str, int], tuple[int, str]] = {}  # between pre- and post-hook
        # Works nobody has waited for yet, kept alive so that Python meets the same object again:
        self._live: dict[int, tuple[Any, int, tuple[int, ...]]] = {}
        self._futures: dict[int, Any] = {}  # of asynchronous collectives that are not done
        self._told = threading.Condition()
        # by instruction, as looking up the line takes long, and by the id of its code, as hashing
        # that does, too; the code is kept alive. −1 is none of the reader's
        self._lines: dict[tuple[int, int], tuple[int, CodeType]] = {}
        self._groups: dict[str, tuple[int, ...]] = {}

    def now(self) -> float:
        return time.perf_counter() - self.t0

    # -- writing ------------------------------------------------------------------------------

    def issued(self, op: str, group: str, peer: int, reads: Any, writes: Any, is_async: bool,
               shape: tuple[int, ...] = ()) -> int:  # fmt: skip
        """Write down a call that begins now; ``peer`` −1 is none. Returns its number."""
        call = speaking.call
        line = self._line(call.caller)
        call.mine = mine = line >= 0
        if not mine:
            line = self._line(find_frame())
        tensors = (*reads, *writes)
        dtype, packed, bytes_in, bytes_out = None, True, 0, 0
        if tensors:
            dtype, shape = tensors[0].dtype, tensors[0].shape
            for tensor in tensors:
                packed = packed and (tensor.is_contiguous() or _is_dense(tensor))
            for tensor in reads:
                bytes_in += tensor.nbytes
            for tensor in writes:
                bytes_out += tensor.nbytes
        if mine and _thread() != self._main:
            self._log.append("threads")
        kind = (op, peer, group, bytes_in, bytes_out, dtype, shape, line, call.tag,
                _operator(call.reduce_op), is_async, mine, packed)  # fmt: skip
        with self._log.lock:
            number = self._kinds.get(kind)
            if number is None:
                number = self._new_kind(kind)
            seq = self._count
            self._count = seq + 1
            self._log.append("issued", seq, number, time.perf_counter() - self.t0)
        return seq

    def _new_kind(self, kind: tuple) -> int:
        if len(self._kinds) == _KINDS:
            self._kinds.clear()
        number = self._kinds[kind] = len(self._kinds)
        *first, dtype, shape = kind[:7]
        name = None if dtype is None else str(dtype).removeprefix("torch.")
        self._log.append("kind", number, *first, name, tuple(shape), *kind[7:])
        return number

    def completed(self, seq: int, peer: int = -1, waited: bool = True) -> None:
        at = time.perf_counter() - self.t0 if self._wait_means_done else nan
        self._log.append("ended", seq, at, peer, waited)

    def ended(self, seq: int) -> None:
        """The call has raised an exception: its rank is no longer in it."""
        self._log.append("ended", seq, nan, -1, True)

    def refused(self, seq: int) -> None:
        """The call has raised an exception before it became an operation."""
        self._log.append("refused", seq)

    def span(self, name: str, start: float, end: float) -> None:
        self._log.append("span", name, start, end)

    def _line(self, frame: FrameType | None) -> int:
        """The number in the log of the line where a frame stands; −1 if it is not the reader's."""
        if frame is None:
            return -1
        code = frame.f_code
        place = (id(code), frame.f_lasti)
        known = self._lines.get(place)
        if known is None:
            with self._log.lock:
                number = len(self._lines) if is_user_code(code.co_filename) else -1
                known = self._lines[place] = number, code
                if number >= 0:
                    at = line_of(frame)
                    self._log.append("line", number, at.where, at.number, at.source, at.function)
        return known[0]

    # -- groups and hooks ---------------------------------------------------------------------

    def watch(self, group: Any) -> None:
        """Record everything that is said in this group from now on."""
        if not isinstance(group, dist.ProcessGroup) or group.group_name in self._groups:
            return
        name, ranks = group.group_name, tuple(dist.get_process_group_ranks(group))
        if dist.get_backend(group) == "nccl":
            self._wait_means_done = False  # there, wait() orders streams and returns at once
        self._groups[name] = ranks
        self._log.append("group", name, ranks)
        if unavailable() is None:
            group.register_pre_hook(_HOOK, functools.partial(self._before, name, ranks))
            group.register_post_hook(_HOOK, functools.partial(self._after, name, ranks))

    def leave(self) -> None:
        """Take the hooks off the world's group again."""
        if unavailable() is None:
            dist.group.WORLD.unregister_pre_hook(_HOOK)  # type: ignore[union-attr]
            dist.group.WORLD.unregister_post_hook(_HOOK)  # type: ignore[union-attr]

    def _before(self, group: str, ranks: tuple[int, ...], args: Any) -> None:
        call = speaking.call
        if call.seq >= 0:  # one of several that a call consists of
            self.completed(call.seq)
        op, root = call.op or _op(args.name), args.root
        is_async = args.async_op and not call.blocking
        known = 0 <= root < len(ranks)  # torch is yet to look at it
        seq = self.issued(op, group, ranks[root] if known else -1,
                          args.input_tensors, args.output_tensors, is_async)  # fmt: skip
        call.asked = seq
        if is_async or call.caller is None:
            self._pending[group, args.op_id] = seq, op
            call.seq = -1
        else:  # it comes back when it is done: no need to know its Work
            call.seq = seq

    def _after(self, group: str, ranks: tuple[int, ...], args: Any) -> None:
        call = speaking.call
        call.asked = -1
        if call.seq >= 0:
            return
        seq, op = self._pending.pop((group, args.op_id))
        work = args.work
        if work is None:
            self.completed(seq)
            return
        self._live[id(work)] = (work, seq, ranks if op == "recv" else ())
        collective = op not in ("send", "recv")
        if args.async_op and collective and not torch.cuda.is_initialized():
            self._tell_when_done(work, seq, None if call.mine else id(work))

    def _tell_when_done(self, work: Any, seq: int, key: int | None) -> None:
        try:
            future = _get_future(work)
        except RuntimeError:  # some of gloo's have none (reduce_scatter): only wait() will tell
            return
        self._futures[seq] = future
        future.then(functools.partial(self._done, seq, key))

    def _done(self, seq: int, key: int | None, _future: Any) -> None:
        """An asynchronous collective is done; nobody may ever wait for one of torch's own."""
        self.completed(seq, waited=False)
        if key is not None:
            self._live.pop(key, None)
        with self._told:
            self._futures.pop(seq, None)
            self._told.notify_all()

    def settle(self) -> None:
        """Wait until everything that is done is written down: gloo's thread says so, a moment
        after it has let go those who waited in C++.
        """
        with self._told:
            self._told.wait_for(lambda: not any(f.done() for f in self._futures.values()), 1.0)

    def waiting(self, work: Any) -> None:
        """Somebody begins to wait for this Work; if that never ends, here is where it stood."""
        if speaking.call.caller is not None or _thread() != self._main:
            return  # inside a blocking call: its own record says where it stands
        entry = self._live.get(id(work))
        if entry is not None:
            self._log.append("waiting", entry[1], self._line(find_frame()))

    def waited(self, work: Any) -> None:
        """Somebody's ``wait()`` on this Work has returned."""
        call = speaking.call
        if call.seq >= 0:
            self.completed(call.seq)
            call.seq = -1
            return
        entry = self._live.pop(id(work), None)
        if entry is not None:
            _, seq, ranks = entry
            self.completed(seq, ranks[work._source_rank()] if ranks else -1)

    def taken(self, work: Any) -> None:
        """Somebody took this Work's future, heard that it is complete, or waited in vain: as good
        as waiting."""
        entry = self._live.get(id(work))
        if entry is not None:
            self._log.append("taken", entry[1])


_operators: dict[int, tuple[str, Any]] = {}  # by id, as their hash is slow; kept alive


def _operator(op: Any) -> str | None:
    """SUM, MAX, …; None where the call has none."""
    if op is None:
        return None
    known = _operators.get(id(op))
    if known is None:
        name = getattr(op, "name", None) or str(op).rpartition(".")[2]
        known = _operators[id(op)] = name, op
    return known[0]


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie side by side in some order, as those of a transpose do."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous()


# ---- the one at work ---------------------------------------------------------------------------


def begin(recorder: Recorder, t0: float) -> None:
    """Record everything that this process says from now on; ``t0`` on the clock counts as 0."""
    global at_work
    recorder.t0 = t0
    if dist.is_initialized():
        recorder.watch(dist.group.WORLD)
    at_work = recorder


def stop() -> None:
    """Record no more in this process."""
    resume(None)


def resume(recorder: Recorder | None) -> None:
    """Record with this Recorder again, which has begun before."""
    global at_work
    at_work = recorder
