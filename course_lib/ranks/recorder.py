"""Writes down what a rank says, at the moment it says it.

Three sources, joined in one "issued" record per call:

    c10d's pre-hook     what is issued: op, tensors, root or peer, of Python and of C++ callers
    c10d's post-hook    the Work that stands for it
    the wrappers        what the hooks do not say: tag, reduce op, whose call it is, new groups

Completion is written when a synchronous call returns, by its wrapper; when somebody waits for the
Work; or, for asynchronous collectives, when their future says so.
"""

from __future__ import annotations

import functools
import threading
import time
from types import CodeType, FrameType
from typing import Any

import torch
import torch.distributed as dist

from course_lib.ranks.log import Writer
from course_lib.user_code import find_frame, is_user_code, line_of

# HookOpName → the name that a reader of torch.distributed's documentation knows, where it is not
# the same in small letters.
_OPS = {
    "ALLREDUCE": "all_reduce", "ALLREDUCE_COALESCED": "all_reduce_coalesced",
    "ALLGATHER": "all_gather", "ALLGATHER_COALESCED": "all_gather_coalesced",
    "ALLGATHER_BASE": "all_gather_single", "ALLGATHER_INTO_TENSOR_COALESCED": "all_gather_single",
    "REDUCE_SCATTER_TENSOR_COALESCED": "reduce_scatter_single", "ALLTOALL": "all_to_all",
    "REDUCE_SCATTER_BASE": "reduce_scatter_single", "ALLTOALL_BASE": "all_to_all_single",
}  # fmt: skip
_HOOK = 0xC0E5  # our id among a group's hooks
_get_future = dist.Work.get_future


class Call:
    """What the wrapper around a thread's current call knows, for the hooks that fire inside it."""

    caller: FrameType | None = None  # who calls; None while nobody does
    blocking_message = False  # send, recv: their hook says async all the same
    tag = 0
    reduce_op: Any = None
    by_user = False  # the reader's own code calls, and gets the Work if there is one
    open_seq = -1  # of the event that is done when the call returns, if there is one
    unaccepted = -1  # of the event between its pre- and post-hook: torch may refuse it


class _Thread(threading.local):
    def __init__(self) -> None:
        self.call = Call()


this_thread = _Thread()
active_recorder: Recorder | None = None


class Recorder:
    """One rank's. It is made ready with the rank, and records from ``recorder.begin`` on."""

    def __init__(self, fd: int) -> None:
        self.t0 = 0.0
        self._log = Writer(fd)
        self._lock = threading.Lock()  # numbers go into the log in order
        self._wait_means_done = True
        self._main = threading.main_thread().ident
        self._count = 0
        # Works nobody has waited for yet, kept alive so that Python meets the same object again:
        self._live: dict[int, tuple[Any, int, tuple[int, ...]]] = {}
        self._futures: dict[int, Any] = {}  # of asynchronous collectives that are not done
        # by instruction, as looking up the line takes long, and by the id of its code, as hashing
        # that does, too; the code is kept alive. −1 is none of the reader's
        self._lines: dict[tuple[int, int], tuple[int, CodeType]] = {}
        self._groups: set[str] = set()

    # -- writing ------------------------------------------------------------------------------

    def issued(self, op: str, group: str, peer: int | None, reads: Any, writes: Any,
               is_async: bool, shape: tuple[int, ...] = ()) -> int:  # fmt: skip
        """Write down a call that begins now; returns its number."""
        call = this_thread.call
        line = self._line(call.caller)
        call.by_user = by_user = line >= 0
        if not by_user:
            line = self._line(find_frame())
        tensors = (*reads, *writes)
        dtype, dense, bytes_in, bytes_out = None, True, 0, 0
        if tensors:
            dtype, shape = _dtype(tensors[0].dtype), tuple(tensors[0].shape)
            for tensor in tensors:
                dense = dense and (tensor.is_contiguous() or _is_dense(tensor))
            for tensor in reads:
                bytes_in += tensor.nbytes
            for tensor in writes:
                bytes_out += tensor.nbytes
        if by_user and threading.get_ident() != self._main:
            self._log.append("threads")
        reduce_op = None if call.reduce_op is None else _reduce_op(call.reduce_op)
        waited = not (is_async and by_user)  # nobody has to wait for a Work of torch's own
        with self._lock:
            seq = self._count
            self._count = seq + 1
            # Event's fields from op on, but for ``completed``: see History._read_issued
            self._log.append("issued", op, peer, group, max(bytes_in, bytes_out), dtype, shape,
                             time.perf_counter() - self.t0, line, call.tag, reduce_op, is_async,
                             waited, bytes_in, bytes_out, dense, seq)  # fmt: skip
        return seq

    def completed(self, seq: int, source: int | None = None, waited: bool = True) -> None:
        """The call is done, and so is its operation, as far as one can know."""
        at = time.perf_counter() - self.t0 if self._wait_means_done else None
        self._log.append("ended", seq, at, source, waited)

    def raised(self, seq: int) -> None:
        """The call has raised an exception: its rank is no longer in it."""
        self._log.append("ended", seq, None, None, True)

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
            with self._lock:
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
        self._groups.add(name)
        self._log.append("group", name, ranks)
        group.register_pre_hook(_HOOK, functools.partial(self._before, name, ranks))
        group.register_post_hook(_HOOK, functools.partial(self._after, ranks))

    def _before(self, group: str, ranks: tuple[int, ...], args: Any) -> None:
        call = this_thread.call
        if call.open_seq >= 0:  # one of several that a call consists of
            self.completed(call.open_seq)
        op, root = _op(args.name), args.root
        is_async = args.async_op and not call.blocking_message
        peer = ranks[root] if 0 <= root < len(ranks) else None  # torch is yet to look at it
        seq = self.issued(op, group, peer, args.input_tensors, args.output_tensors, is_async)
        call.unaccepted = seq
        # A synchronous one comes back when it is done: no need to know its Work.
        call.open_seq = -1 if is_async or call.caller is None else seq

    def _after(self, ranks: tuple[int, ...], args: Any) -> None:
        call = this_thread.call
        seq, call.unaccepted = call.unaccepted, -1
        if call.open_seq >= 0:
            return
        op, work = _op(args.name), args.work
        if work is None:
            self.completed(seq)
            return
        self._live[id(work)] = (work, seq, ranks if op == "recv" else ())
        collective = op not in ("send", "recv")
        if args.async_op and collective and not torch.cuda.is_initialized():
            self._write_when_done(work, seq, None if call.by_user else id(work))

    def _write_when_done(self, work: Any, seq: int, key: int | None) -> None:
        try:
            future = _get_future(work)
        except RuntimeError:  # some of gloo's have none (reduce_scatter): only wait() will tell
            return
        self._futures[seq] = future
        future.then(functools.partial(self._done, seq, key))

    def _done(self, seq: int, key: int | None, _future: Any) -> None:
        """An asynchronous collective is done; nobody may ever wait for one of torch's own."""
        if self._futures.pop(seq, None) is not None:
            self.completed(seq, waited=False)
        if key is not None:
            self._live.pop(key, None)

    def settle(self) -> None:
        """Write down what is done and not written down yet: gloo's thread does, but a moment after
        it has let go those who waited in C++.
        """
        for seq, future in list(self._futures.items()):
            if future.done():
                self._done(seq, None, future)

    def waiting(self, work: Any) -> None:
        """Somebody begins to wait for this Work; if that never ends, here is where it stood."""
        if this_thread.call.caller is not None or threading.get_ident() != self._main:
            return  # inside a synchronous call: its own record says where it stands
        entry = self._live.get(id(work))
        if entry is not None:
            self._log.append("waiting", entry[1], self._line(find_frame()))

    def waited(self, work: Any) -> None:
        """Somebody's ``wait()`` on this Work has returned."""
        entry = self._live.pop(id(work), None)
        if entry is not None:
            _, seq, ranks = entry
            self.completed(seq, ranks[work._source_rank()] if ranks else None)

    def taken(self, work: Any) -> None:
        """Somebody took this Work's future, heard that it is complete, or waited in vain: as good
        as waiting."""
        entry = self._live.get(id(work))
        if entry is not None:
            self._log.append("taken", entry[1])


@functools.cache
def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@functools.cache
def _op(name: Any) -> str:
    return _OPS.get(name.name, name.name.lower())


def _reduce_op(op: Any) -> str:
    """SUM, MAX, …; of a PREMUL_SUM, which has no name of its own, what it says of itself."""
    return getattr(op, "name", None) or str(op).rpartition(".")[2]


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie side by side in some order, as those of a transpose do."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous()


# ---- the one that records ------------------------------------------------------------------------


def begin(recorder: Recorder, t0: float) -> None:
    """Record everything that this process says from now on; ``t0`` on the clock counts as 0."""
    global active_recorder
    recorder.t0 = t0
    if dist.is_initialized():
        recorder.watch(dist.group.WORLD)
    active_recorder = recorder


def stop() -> None:
    """Record no more in this process."""
    global active_recorder
    active_recorder = None
