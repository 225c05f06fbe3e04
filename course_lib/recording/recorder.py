"""Writes down what a rank calls, at the moment it calls it.

    begin(Recorder(Writer(fd), "cpu"))    from now on the process is recorded, until stop()

What is known of a call has three sources, which meet in ``current_call``:

    c10d's pre-hook     what is called: op, tensors, root or peer, of Python and of C++ callers
    the wrappers        what the hooks do not say: tag, reduce op, new groups, what torch refused
    c10d's post-hook    the Work that stands for the call

An "issued" record is written before the call begins, an "ended" record when somebody waits for the
Work; torch does that itself in a synchronous call. For asynchronous collectives their future says
when they are done. log.py lists the records.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import torch
import torch.distributed as dist
import typing_extensions

from course_lib import context
from course_lib.collectives import OP_OF_METHOD, collective
from course_lib.overlap import shared_memory
from course_lib.recording import tensor_layout as layout
from course_lib.recording.log import Writer
from course_lib.recording.stack import in_backward
from course_lib.trace import Curve
from course_lib.user_code import find_frame, is_user_frame, line_of, sharded_module

_LETTING_GO = 0.03  # seconds: see Recorder.let_go; after 30 ms none of 30 measurements was off
_HOOK = 0xC0E5  # our id among a group's hooks
# c10d's hooks know a call by the older name of its method
_OP_OF_HOOK = {method.strip("_").upper(): op for method, op in OP_OF_METHOD.items()}
_get_future = dist.Work.get_future
_is_done = torch._C.Future.done
# The files that a call passes through on its way from the caller to the hook.
_C10D = dist.isend.__code__.co_filename
_ON_THE_WAY = {
    _C10D,
    dist.send.__code__.co_filename,
    typing_extensions.__file__,
    os.path.join(os.path.dirname(__file__), "wrappers.py"),
}


class CurrentCall(threading.local):
    """What a wrapper knows of its thread's current call, for the hook that fires next inside it."""

    tag = 0
    reduce_op: str | None = None
    op = ""
    is_async = False
    by_user = False  # the reader's own code makes the call, and gets its Work if there is one
    splits: Sequence[Any] | None = None  # of all_to_all_single: rows out and in, by rank
    memory = 0  # the address to which an asynchronous call of torch's own writes
    seq = -1  # the call's number between its two hooks, where torch may still refuse it


current_call = CurrentCall()
active_recorder: Recorder | None = None


class Recorder(context.Context):
    """Records one rank, from ``begin`` on.

    It is also the rank's Context, which answers when the reader's code asks for its device or
    marks a span.
    """

    def __init__(self, log: Writer, device: str) -> None:
        self.device = torch.device(device)
        self.t0 = 0.0  # the time.perf_counter() that counts as zero
        self._log = log
        self._lock = threading.Lock()  # numbers go into the log in order
        self._on_nccl = False
        self._worlds = 0  # how many worlds were formed: torch gives their groups the same names
        self._main = threading.main_thread().ident
        # by group, the other threads that have called in it, the last one last, each with its line
        self._threads: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._count = 0
        self._watched: list[Any] = []  # groups
        # By id, each Work that nobody has waited for yet, with its call's number, whether the call
        # is asynchronous, and the ranks from which it may receive. Works are kept alive so that
        # torch hands out the same object, with the same id, again.
        self._live: dict[int, tuple[Any, int, bool, tuple[int, ...]]] = {}
        self._futures: dict[int, Any] = {}  # of asynchronous collectives that are not done
        # Calls of torch's own whose Work has no future, by the address that they write to: they
        # count as completed when wait_tensor is called for that address.
        self._unheard: dict[int, int] = {}
        # Of the reader's asynchronous collectives that nobody has waited for: the memory that they
        # fill, and the futures that the reader has asked for.
        self._filling: dict[int, list[tuple[int, int]]] = {}
        self._promised: dict[int, Any] = {}
        # The number of each instruction's line in the log, −1 for a line that is not the reader's,
        # because looking it up takes long. The key has the id of the code, because hashing that
        # takes long, too; the value keeps the code alive.
        self._lines: dict[tuple[int, int], tuple[int, CodeType]] = {}

    # -- groups and hooks ---------------------------------------------------------------------

    def watch(self, group: Any) -> None:
        """Record every call in this group from now on."""
        if not isinstance(group, dist.ProcessGroup):
            return  # this rank is not in it
        self._worlds += group is dist.group.WORLD
        name, ranks = self.name_in_trace(group), tuple(dist.get_process_group_ranks(group))
        if len(ranks) == 1 and group is not dist.group.WORLD:
            name = f"{name}:{ranks[0]}"  # each rank may make one for itself, with the same name
        self._on_nccl |= dist.get_backend(group) == "nccl"
        self._log.append("group", name, ranks)
        group.register_pre_hook(_HOOK, functools.partial(self._pre_hook, name, ranks))
        group.register_post_hook(_HOOK, functools.partial(self._post_hook, ranks))
        self._watched.append(group)

    def unwatch(self) -> None:
        """Take the hooks away before Python ends: a group that nobody has destroyed would call a
        hook that is gone by then.
        """
        for group in self._watched:
            group.unregister_pre_hook(_HOOK)
            group.unregister_post_hook(_HOOK)
        self._watched.clear()

    def name_in_trace(self, group: Any) -> str:
        """A group's name in the trace; torch counts anew after destroy_process_group()."""
        again = f"#{self._worlds}" if self._worlds > 1 else ""
        return group.group_name + again

    def _pre_hook(self, group: str, ranks: tuple[int, ...], args: Any) -> None:
        """Called by c10d before each call."""
        peer = ranks[args.root] if 0 <= args.root < len(ranks) else None  # torch has not checked it
        call, writes = current_call, args.output_tensors
        call.seq = self.write_call(
            _op_of_hook(args.name), group, peer, args.input_tensors, writes, args.async_op
        )
        if call.is_async and writes and not call.by_user:
            call.memory = layout.memory_of(writes[0])
        if self._filling or (call.is_async and call.by_user):
            fills = writes
            if call.op == "all_reduce" or (call.op == "broadcast" and peer != dist.get_rank()):
                fills = args.input_tensors  # in place
            self._look_for_overlap(call, (*args.input_tensors, *writes), fills)

    def _look_for_overlap(self, call: CurrentCall, tensors: Sequence[Any], fills: Any) -> None:
        """Write down if a collective of the reader's is given memory that another one has yet to
        fill. On NCCL that is no fault: the calls of a group come one after the other.
        """
        if self._on_nccl or call.op in ("send", "recv"):
            return
        if collective(call.op).ends_earlier:  # see Note [A barrier is behind all]
            self._filling.clear()
        given = [layout.span_of(t) for t in tensors] if self._filling and call.by_user else ()
        for first, spans in self._filling.items():
            if any(a < d and c < b for a, b in spans for c, d in given):
                self._log.append("overlaps", call.seq, first)
                break
        if call.is_async and call.by_user:
            self._filling[call.seq] = [layout.span_of(t) for t in fills]

    def _post_hook(self, ranks: tuple[int, ...], args: Any) -> None:
        """Called by c10d once a call has a Work, or is done."""
        call, work = current_call, args.work
        op, seq, call.seq = call.op, call.seq, -1
        # No Work, or on NCCL a call in the current stream: nobody will wait for it.
        if work is None or (self._on_nccl and not call.is_async):
            self.write_completed(seq)
            return
        # Who waits will find the call by its Work. A future tells of those that nobody waits for.
        self._live[id(work)] = work, seq, call.is_async, ranks if op == "recv" else ()
        if args.async_op and op not in ("send", "recv") and not torch.cuda.is_initialized():
            key = None if call.by_user else id(work)
            try:
                self._futures[seq] = future = _get_future(work)
                future.then(functools.partial(self._write_done, seq, key))
            except RuntimeError:  # some Works of gloo's have no future
                if not call.by_user:  # the reader waits for the Work itself
                    self._unheard[call.memory] = seq

    # -- writing ------------------------------------------------------------------------------

    def write_call(
        self,
        op: str,
        group: str,
        peer: int | None,
        reads: Any,
        writes: Any,
        is_async: bool,
        shape: tuple[int, ...] = (),
    ) -> int:
        """Write down a call that begins now, before it can do any harm; returns its number."""
        # Who calls: a line of the reader's own, or a library that such a line has led to.
        call = current_call
        caller, function = _find_caller()
        line = self._number_line(caller)
        call.op, call.by_user = op, (by_user := line >= 0)
        # the hooks call a blocking send or recv asynchronous, too
        call.is_async = is_async = is_async and function not in ("send", "recv")
        if not by_user:
            line = self.line_here(caller)
        # What is called, with which tensors.
        kind, dtype, bytes_in, bytes_out, dense = collective(op), None, 0, 0, True
        if reads or writes:
            first = reads[0] if reads else writes[0]
            dtype, shape = layout.dtype_name(first.dtype), tuple(first.shape)
            in_order = kind.memory == "in order"
            bytes_in, bytes_out, dense = layout.sizes_of(reads, writes, in_order)
        more = layout.splits_of(op, reads, writes, call.splits) if kind.uneven_on else ()
        within = function if "_object" in function else "" if by_user else sharded_module(caller)
        # ``more`` are the last fields of the record: called, in_splits, out_splits, stream, within.
        if within and op not in ("send", "recv"):
            more = (*(more or (None, None, None)), None, within)
        thread = threading.get_ident()
        if by_user and thread != self._main:
            self._log.append("flag", "has_threads")
        waited = not (is_async and by_user)  # nobody has to wait for a Work of torch's own
        with self._lock:
            seq = self._count
            self._count = seq + 1
            # By position: see Note [An issued record] in log.py.
            size, now = max(bytes_in, bytes_out), self.now()
            what = "issued", op, peer, group, size, dtype, shape, now, None, line, call.tag
            how = call.reduce_op, is_async, waited, bytes_in, bytes_out, dense, seq
            self._log.append(*what, *how, *more)
        shared = kind.fills_a_list and shared_memory(writes, kind.writes_what_it_reads)
        if shared:
            self._log.append("shares", seq, shared)
        if thread != self._main:
            self._note_thread(thread, self._threads[group], seq, line)
        return seq

    def _note_thread(self, thread: int, before: dict[int, int], seq: int, line: int) -> None:
        """A thread other than the main one has called, after those ``before`` in the same group.
        If it comes back after another one, the two use the group at the same time.
        """
        if thread in before and (last := next(reversed(before))) != thread:
            self._log.append("threads", seq, before[last])
        before.pop(thread, None)
        before[thread] = line

    def write_refused(self, seq: int) -> None:
        """torch has raised an exception before the call became an operation."""
        self._log.append("refused", seq)

    def write_completed(self, seq: int, source: int | None = None, waited: bool = True) -> None:
        """The call is done, and so is its operation, as far as one can know."""
        # on NCCL, wait() orders streams and returns at once
        at = None if self._on_nccl else self.now()
        self._log.append("ended", seq, at, source, waited)

    def now(self) -> float:
        return time.perf_counter() - self.t0

    def add_span(self, name: str, start: float, end: float) -> None:
        if active_recorder is self:
            self._log.append("span", name, start, end)

    def add_memory(self, curve: Curve) -> None:
        if active_recorder is self:
            self._log.append("memory", curve)

    def let_go(self) -> None:
        """gloo's thread holds a call's tensors for some milliseconds after its wait()."""
        time.sleep(_LETTING_GO)

    def line_here(self, frame: FrameType | None) -> int:
        """The number of the reader's line that led to a frame, or of the line that started this
        thread if there is none; else −1.
        """
        line = self._number_line(find_frame(frame))
        return line if line >= 0 else getattr(threading.current_thread(), "started_at", -1)

    def _number_line(self, frame: FrameType | None) -> int:
        """The number in the log of the line where a frame stands; −1 if it is not the reader's.
        A line is written down when it is first met.
        """
        if frame is None:
            return -1
        code = frame.f_code
        place = (id(code), frame.f_lasti)
        known = self._lines.get(place)
        if known is None:
            with self._lock:
                number = len(self._lines) if is_user_frame(frame) else -1
                known = self._lines[place] = number, code
                if number >= 0:
                    at = line_of(frame)
                    text = at.source, at.function, at.file
                    self._log.append("line", number, at.where, at.number, *text)
        return known[0]

    # -- how calls end ----------------------------------------------------------------------

    def _write_done(self, seq: int, key: int | None, _future: Any) -> None:
        """An asynchronous collective is done. ``key`` is the id of its Work if that is one of
        torch's own: forget it, because it may never be waited for.
        """
        if self._futures.pop(seq, None) is not None:
            self.write_completed(seq, waited=False)
        if key is not None:
            self._live.pop(key, None)

    def write_done_futures(self) -> None:
        """Write down which calls are done. gloo's thread would do it, but only a moment after those
        that waited in C++ have gone on.
        """
        for seq, future in list(self._futures.items()):
            if future.done():
                self._write_done(seq, None, future)

    def write_gave_up(self, seq: int) -> None:
        """The rank has waited for this call in vain: its time is over, or its peer is gone."""
        self._log.append("gave_up", seq, self.now())

    def wait(self, method: Callable, work: Any, *args: Any, **kwargs: Any) -> Any:
        """Called in place of a Work's ``wait()``. The log says where the rank waits before it does,
        in case the wait never ends.
        """
        _, seq, is_async, ranks = self._live.get(id(work), (None, -1, False, ()))
        if is_async:  # the record of a synchronous call says where it waits
            self._write_waiting(seq)
        try:
            result = method(work, *args, **kwargs)
        except RuntimeError:
            if seq >= 0:
                self.write_gave_up(seq)
            raise
        self._filling.pop(seq, None)
        if self._live.pop(id(work), None) is not None:
            self.write_completed(seq, ranks[work._source_rank()] if ranks else None)
        return result

    def is_completed(self, method: Callable, work: Any) -> Any:
        """Called in place of a Work's ``is_completed()``: its yes is as good as waiting."""
        answer, entry = method(work), self._live.get(id(work))
        if answer and entry is not None:
            self._write_waited(entry[1])
        return answer

    def get_future(self, method: Callable, work: Any) -> Any:
        """Called in place of a Work's ``get_future()``. The caller has yet to wait for the future,
        unless it is a hook in ``backward``, as DDP's are: a hook hands the future to C++, which
        waits.
        """
        future, entry = method(work), self._live.get(id(work))
        if entry is not None:
            if in_backward():
                self._write_waited(entry[1])
            else:
                self._promised[entry[1]] = future
        return future

    def note_done_futures(self) -> None:
        """Somebody has waited for a future, or asked one that is done. Nobody knows which Work it
        belongs to, because ``then`` may have made it of another future. So all that are done now
        count as waited for.
        """
        for seq, future in list(self._promised.items()):
            if _is_done(future):
                del self._promised[seq]
                self._write_waited(seq)

    def _write_waited(self, seq: int) -> None:
        self._filling.pop(seq, None)
        self._log.append("waited", seq)

    def wait_for_written(self, function: Callable, tensors: Any) -> Any:
        """Called in place of ``wait_tensor`` and ``wait_tensors``, which wait for a functional
        collective by what it writes: the only sign that a call in ``_unheard`` has ended.
        """
        written = tensors if isinstance(tensors, list) else [tensors]
        plain = [t for t in written if self._unheard and type(t) is torch.Tensor]
        found = [self._unheard.pop(layout.memory_of(tensor), -1) for tensor in plain]
        calls = [seq for seq in found if seq >= 0]
        for seq in calls:
            self._write_waiting(seq)
        result = function(tensors)
        for seq in calls:
            self.write_completed(seq)
        return result

    @contextmanager
    def waiting_in_cpp(self, what: str) -> Iterator[None]:
        """Around a wait in C++ for something that the log does not know."""
        self._log.append("flag", what, True)
        try:
            yield
        finally:
            self._log.append("flag", what, False)

    def _write_waiting(self, seq: int) -> None:
        """The main thread begins to wait for a call; the log says at which line."""
        if threading.get_ident() == self._main:
            self._log.append("waiting", seq, self._number_line(find_frame(sys._getframe())))


def _find_caller() -> tuple[FrameType | None, str]:
    """The frame that calls torch.distributed, at least three from here, and the name of the
    function that it calls.
    """
    frame: FrameType | None = sys._getframe(3)
    function = ""
    while frame is not None and (file := frame.f_code.co_filename) in _ON_THE_WAY:
        if file == _C10D:
            function = frame.f_code.co_name
        frame = frame.f_back
    return frame, function


@functools.cache
def _op_of_hook(name: Any) -> str:
    """The operation that c10d's hooks call by this name."""
    return _OP_OF_HOOK.get(name.name, name.name.lower())


# ---- the one that records ------------------------------------------------------------------------


def begin(recorder: Recorder) -> None:
    """Record everything that this process says from now on."""
    global active_recorder
    if dist.is_initialized():
        recorder.watch(dist.group.WORLD)
    active_recorder = recorder


def stop() -> None:
    """Record no more in this process."""
    global active_recorder
    active_recorder = None
