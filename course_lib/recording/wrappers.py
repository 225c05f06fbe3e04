"""Thin wrappers where c10d's hooks are silent: tag, reduce op, new groups, waits.

``install`` puts them in place, once, in the process that ranks are forked from. While nobody
records, they only refuse a message to or from a rank that does not exist: gloo would wait for it,
and nobody could say why.

# Note [The arguments of c10d's methods]
torch calls the methods of ProcessGroup by position, so ``_wrap_operation`` looks for what it needs
where each method has it: a message's tag is last and its peer before that, a collective's options
are last, and all_to_all_single has the rows to write and to read third and fourth. If a version of
torch moves one of them, test_recording.py says which (test_c10ds_methods_take_their_arguments_…).
"""

from __future__ import annotations

import functools
import operator
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d as c10d

from course_lib.collectives import OP_OF_METHOD
from course_lib.diagnosis.failure import RankOutcome
from course_lib.recording import recorder
from course_lib.recording.recorder import Recorder
from course_lib.rendezvous import already_formed_text

formed: Any = None  # the group that run() has formed
# What gloo says of a message to oneself: it has a pair for each other rank, and none for this one.
_NO_PAIR = re.compile(r"\[enforce fail .*Pair is not connected \(.* <--> \[none\]\)")
_OPERATIONS = ("send", "recv", "recv_anysource", *OP_OF_METHOD)


def install() -> None:
    """Put the wrappers in place; a fork inherits them."""
    _replace(dist.ProcessGroup, _wrap_operation, *_OPERATIONS)
    _wrap(dist.Work, Recorder.wait, "wait")
    _wrap(dist.Work, Recorder.is_completed, "is_completed")
    _wrap(dist.Work, Recorder.get_future, "get_future")
    _wrap(torch._C.Future, _wait_for_future, "wait")
    _wrap(torch._C.Future, _ask_future, "done")  # a callback asks for the value
    _wrap(dist.ProcessGroup, _call_monitored_barrier, "monitored_barrier")
    _wrap(threading.Thread, _start_thread, "start")
    _wrap(functional, Recorder.wait_for_written, "wait_tensor", "wait_tensors")
    torchs = [m for name, m in list(sys.modules.items()) if name.startswith("torch.distributed")]
    for replace, wrapper, name in (
        (_replace, _wrap_init, "init_process_group"),
        (_wrap, _make_group, "new_group"),
    ):
        original = getattr(c10d, name)
        for module in torchs:  # several modules have imported it by its name
            if module.__dict__.get(name) is original:
                replace(module, wrapper, name)
    os.register_at_fork(after_in_child=recorder.stop)  # a rank's own children are not the rank


def _replace(owner: Any, wrapper: Callable, *names: str) -> None:
    for name in names:
        original = getattr(owner, name)
        setattr(owner, name, functools.update_wrapper(wrapper(original), original))


def _wrap(owner: Any, wrapper: Callable, *names: str) -> None:
    """While somebody records, have the wrapper called in place of these functions, with the
    recorder and the original before their arguments.
    """

    def recorded(original: Callable) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            active = recorder.active_recorder
            if active is None:
                return original(*args, **kwargs)
            return wrapper(active, original, *args, **kwargs)

        return call

    _replace(owner, recorded, *names)


_name_of = functools.cache(operator.attrgetter("name"))  # a reduce op's; to ask for it takes long


def _wrap_operation(method: Callable) -> Callable:
    """A method of ProcessGroup that notes its tag, reduce op or splits for the hook that fires
    inside it: see Note [The arguments of c10d's methods].
    """
    is_message = method.__name__ in ("send", "recv", "recv_anysource")
    has_splits = method.__name__ == "all_to_all_single"

    def operation(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = recorder.current_call
        last: Any = args[-1] if args else None
        if is_message:
            peer = args[1] if len(args) > 2 else None
            if isinstance(peer, int) and not 0 <= peer < self.size():
                raise RuntimeError(f"there is no rank {peer}: ranks are 0 to {self.size() - 1}")
            call.tag = int(kwargs.get("tag", 0) if kwargs else last)
        elif op := getattr(last, "reduceOp", None):
            call.reduce_op = _name_of(op.op)
        elif has_splits and len(args) > 3:
            n = self.size()
            written, read, *given = args[:4]
            both = zip((written, read), given, strict=True)
            call.splits = [rows or [len(tensor) // n] * n for tensor, rows in both]
        try:
            return method(self, *args, **kwargs)
        except BaseException as error:
            if call.seq >= 0 and recorder.active_recorder is not None:
                recorder.active_recorder.write_refused(call.seq)
            if is_message and _NO_PAIR.search(str(error)):
                itself = f"rank {dist.get_rank()} cannot {method.__name__} to or from itself"
                raise RuntimeError(f"{itself}: there is no such connection, copy") from None
            raise
        finally:
            call.tag, call.reduce_op, call.splits, call.seq = 0, None, None, -1

    return operation


def _wrap_init(function: Callable) -> Callable:
    """``init_process_group``; the world that it forms is recorded from then on."""

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        if formed is not None and dist.group.WORLD is formed:
            raise ValueError(already_formed_text("run()"))
        active = recorder.active_recorder
        if active is None:
            return function(*args, **kwargs)
        with active.waiting_in_cpp("forming"):
            function(*args, **kwargs)
        return active.watch(dist.group.WORLD)

    return init_process_group


def _make_group(
    active: Recorder, function: Callable, ranks: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Called in place of ``new_group``, which all ranks call: so it is an Event itself."""
    if not dist.is_initialized():
        return function(ranks, *args, **kwargs)
    if kwargs.get("use_local_synchronization"):  # only members call it, and meet in the new group
        made = function(ranks, *args, **kwargs)
    else:
        world = active.name_in_trace(dist.group.WORLD)
        members = ranks if isinstance(ranks, Sequence) else ()
        shape = tuple(int(rank) for rank in members if hasattr(rank, "__index__"))
        seq = active.write_call("new_group", world, None, (), (), False, shape)
        try:
            made = function(ranks, *args, **kwargs)
        except BaseException as error:
            waited_in_vain = RankOutcome.of_exception(0, 0.0, error).timed_out
            (active.write_gave_up if waited_in_vain else active.write_refused)(seq)
            raise
        active.write_completed(seq)
    active.watch(made)
    return made


def _wait_for_future(active: Recorder, method: Callable, future: Any) -> Any:
    if not future.done():
        with active.waiting_in_cpp("in_future"):
            method(future)
    active.note_done_futures()
    return method(future)


def _ask_future(active: Recorder, method: Callable, future: Any) -> Any:
    answer = method(future)
    active.note_done_futures()
    return answer


def _start_thread(active: Recorder, method: Callable, thread: Any) -> None:
    """Note the line that starts a thread: its own calls may come from no line of the reader's."""
    thread.started_at = active.line_here(sys._getframe())
    method(thread)


def _call_monitored_barrier(
    active: Recorder, method: Callable, group: Any, *args: Any, **kwargs: Any
) -> None:
    """A call of which the hooks say nothing."""
    seq = active.write_call("monitored_barrier", active.name_in_trace(group), None, (), (), False)
    try:
        method(group, *args, **kwargs)
    except RuntimeError:
        active.write_gave_up(seq)
        raise
    active.write_completed(seq)
