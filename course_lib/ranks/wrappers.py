"""Thin wrappers where c10d's hooks are silent: tag, reduce op, whose call it is, new groups, waits.

    the reader's line ─► wrapper: whose call, tag, op ─► torch.distributed ─► hook ─► Recorder

They are put around torch's functions once per process. Where nobody records they do nothing but
refuse a message to or from a rank that is not there: gloo would wait for it, and nobody knows why.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from course_lib.ranks import recorder

_CALLS = (
    "send", "recv", "isend", "irecv", "batch_isend_irecv", "barrier", "broadcast", "all_reduce",
    "reduce", "gather", "scatter", "all_gather", "all_gather_single", "all_gather_into_tensor",
    "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "all_to_all",
    "all_to_all_single", "all_gather_object", "gather_object", "scatter_object_list",
    "broadcast_object_list",
)  # fmt: skip


def install() -> None:
    """Put the wrappers in place, once per process."""
    if hasattr(dist.Work.wait, "__wrapped__"):
        return  # a fork has inherited them
    for name in _CALLS:
        _replace(name, _wrap_call(name, getattr(c10d, name)))
    _replace("init_process_group", _wrap_init(c10d.init_process_group))
    _replace("new_group", _wrap_new_group(c10d.new_group))
    for name in ("send", "recv"):
        setattr(dist.ProcessGroup, name, _wrap_message(getattr(dist.ProcessGroup, name)))
    dist.Work.wait = _wrap_wait(dist.Work.wait)  # type: ignore[method-assign]
    dist.Work.get_future = _wrap_taking(dist.Work.get_future)  # type: ignore[method-assign]
    dist.Work.is_completed = _wrap_taking(dist.Work.is_completed)  # type: ignore[method-assign]
    os.register_at_fork(after_in_child=recorder.stop)  # a rank's own children are not the rank


def _replace(name: str, wrapper: Callable) -> None:
    """Give every module of torch.distributed that holds the function the wrapper instead."""
    original = getattr(c10d, name)
    for module_name, module in list(sys.modules.items()):
        torchs = module_name.startswith("torch.distributed")
        if torchs and module.__dict__.get(name) is original:
            setattr(module, name, wrapper)


def _argument(function: Callable, name: str) -> Callable[[tuple, dict], Any] | None:
    """How to find one argument of a call, wherever it was put; None where it has no such one."""
    parameters = list(inspect.signature(function).parameters.values())
    for at, parameter in enumerate(parameters):
        if parameter.name == name:
            default = parameter.default
            return lambda a, k: a[at] if len(a) > at else k.get(name, default)
    return None


def _whole(value: Any) -> int:
    """A number as the log can hold it, whatever torch is going to say of it."""
    return int(value) if hasattr(value, "__index__") else 0


def _wrap_call(name: str, function: Callable) -> Callable:
    tag_of, op_of = _argument(function, "tag"), _argument(function, "op")
    blocking_message = name in ("send", "recv")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        active = recorder.active_recorder
        if active is None:
            return function(*args, **kwargs)
        current = recorder.this_thread.call
        if tag_of:
            current.tag = _whole(tag_of(args, kwargs))
        if current.caller:  # recv calls irecv, and batch_isend_irecv several, each with its tag
            return function(*args, **kwargs)
        current.caller, current.blocking_message = sys._getframe(1), blocking_message
        if op_of:
            current.reduce_op = op_of(args, kwargs)
        try:
            result = function(*args, **kwargs)
            if current.open_seq >= 0:
                active.completed(current.open_seq, result if name == "recv" else None)
            return result
        except BaseException:
            if current.unaccepted >= 0:
                active.refused(current.unaccepted)
            elif current.open_seq >= 0:
                active.raised(current.open_seq)
            raise
        finally:
            recorder.this_thread.call = recorder.Call()

    return call


def _wrap_init(function: Callable) -> Callable:
    @functools.wraps(function)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)
        if recorder.active_recorder is not None:
            recorder.active_recorder.watch(dist.group.WORLD)

    return init_process_group


def _wrap_new_group(function: Callable) -> Callable:
    ranks_of = _argument(function, "ranks")
    assert ranks_of is not None

    @functools.wraps(function)
    def new_group(*args: Any, **kwargs: Any) -> Any:
        active = recorder.active_recorder
        if active is None or not dist.is_initialized():
            return function(*args, **kwargs)
        seq = None
        if not kwargs.get("use_local_synchronization"):  # else only members call it
            ranks, name = ranks_of(args, kwargs), dist.group.WORLD.group_name  # type: ignore[union-attr]
            shape = tuple(map(_whole, ranks)) if isinstance(ranks, Sequence) else ()
            seq = active.issued("new_group", name, None, (), (), False, shape)
        try:
            made = function(*args, **kwargs)
        except BaseException:
            if seq is not None:
                active.refused(seq)
            raise
        if seq is not None:
            active.completed(seq)
        active.watch(made)
        return made

    return new_group


def _wrap_message(method: Callable) -> Callable:
    """``ProcessGroup.send`` and ``recv``: (tensors, rank in the group, tag)."""

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        peer = args[1] if len(args) > 1 else None
        if isinstance(peer, int) and not 0 <= peer < self.size():
            raise RuntimeError(f"there is no rank {peer}: ranks are 0 to {self.size() - 1}")
        return method(self, *args, **kwargs)

    return checked


def _wrap_wait(wait: Callable) -> Callable:
    @functools.wraps(wait)
    def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
        active = recorder.active_recorder
        if active is None or recorder.this_thread.call.open_seq >= 0:
            return wait(self, *args, **kwargs)  # the call itself tells when it returns
        active.waiting(self)
        try:
            result = wait(self, *args, **kwargs)
        except RuntimeError:  # its timeout, or a peer that has gone
            active.taken(self)
            raise
        active.waited(self)
        return result

    return waiting


def _wrap_taking(method: Callable) -> Callable:
    """``get_future``, and ``is_completed`` where it says yes: as good as waiting."""

    @functools.wraps(method)
    def taking(self: Any) -> Any:
        answer = method(self)
        if answer and recorder.active_recorder is not None:
            recorder.active_recorder.taken(self)
        return answer

    return taking
