"""Everything private that simulated ranks stand on: of torch, and a little of Python's libraries.

torch keeps one world of process groups per process. Ranks that are threads need one each:

    torch.distributed.distributed_c10d._world   the object that knows the default group
        └── replaced by _Worlds, a threading.local: each thread sees its own attributes
    torch._C …_set_thread_isolation_mode        the same for C++'s registry of groups

``missing()`` says in one line what this torch lacks. No other module touches a name that begins
with an underscore and is not ours, except for private.py, where it replaces one. If torch moves a
name, tests/course_sim/test_compat.py says which.
"""

from __future__ import annotations

import builtins
import inspect
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from traceback import walk_stack
from types import SimpleNamespace
from typing import Any

import cloudpickle.cloudpickle as by_value
import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # binds group=dist.group.WORLD: before any rank does
from torch import overrides
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: F401
from torch.distributed import c10d_logger
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as parallel
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils import _python_dispatch as dispatching

from course_lib.versions import old_torch


def missing() -> str | None:
    """Why this torch cannot simulate, or None if it can."""
    if problem := old_torch(torch.__version__):
        return f"simulate() cannot start ranks: {problem}"
    c: Any = torch._C._distributed_c10d
    world, split = (c10d, "_world"), (dist.ProcessGroup, "split_group")
    wanted = (c, "_set_thread_isolation_mode"), world, split, MAKE_GROUP, REGISTER_GROUP
    gone = [f"{owner.__name__}.{name}" for owner, name in wanted if not hasattr(owner, name)]
    if "new_group" not in c10d._new_group_with_tag.__code__.co_names:  # the default group is asked
        gone.append("new_group of a process group")
    if not gone:
        return None
    return f"simulate() does not know torch {torch.__version__}: {', '.join(gone)} is not there"


def _world_fields() -> list[str]:
    """What torch's world holds; the rest of it is made of that."""
    names = (name for name in dir(c10d._World) if not name.startswith("_"))
    return [name for name in names if name != "pg_config_info"]


class _Worlds(threading.local):
    """The world of process groups that the asking thread lives in.

    Python runs ``__init__`` once in each thread that looks: threads that are no ranks find what
    was there before. Such threads must not make groups while a simulation runs.
    """

    def __init__(self, original: Any) -> None:
        for name in _world_fields():
            setattr(self, name, getattr(original, name))

    pg_config_info = c10d._World.pg_config_info


@contextmanager
def separate_worlds() -> Iterator[None]:
    """Every thread has a world of its own inside; afterwards all is as it was."""
    c: Any = torch._C._distributed_c10d
    original = c10d._world
    c10d._world = _Worlds(original)  # type: ignore[assignment]
    c._set_thread_isolation_mode(True)
    try:
        yield
    finally:
        c._set_thread_isolation_mode(False)
        c10d._world = original


def enter_world(group: Any = None, ranks: dict[int, int] | None = None) -> None:
    """Give the calling thread a fresh world, with ``group`` as its default group, if there is one
    already.
    """
    world = c10d._world
    for name in _world_fields():
        setattr(world, name, None if name == "default_pg" else type(getattr(world, name))())
    if group is not None:
        world.default_pg, world.group_count = group, 1
        add_group(group, ranks or {})


# what init_process_group makes a group with, what torch makes any group known with, and what
# init_process_group leaves behind in the process
MAKE_GROUP = (c10d, "_new_process_group_helper")
REGISTER_GROUP = (c10d, "_register_pg_in_world")
LEFT_BY_INIT: list[tuple[Any, str]] = [
    (c10d, "_backend"),
    (c10d, "_default_pg_init_method"),
    (sys, "excepthook"),
]


def add_group(group: Any, ranks: dict[int, int]) -> None:
    """Make a group known in the calling thread's world: ``ranks`` maps global to group ranks."""
    register: Any = getattr(*REGISTER_GROUP)
    named = {"group_name": group.group_name, "backend_config": backends_of(group)}
    more = {"rank_mapping": ranks, "add_to_default_tag": True}
    register(group, group.backend, group.get_group_store(), **named, **more)


def backends_of(group: Any) -> str:
    """What ``dist.get_backend_config`` says of a simulated group, as "cpu:nccl"."""
    return ",".join(f"{device.type}:{group.backend}" for device in group._device_types)


def leave_world() -> None:
    """Forget the calling thread's groups; C++ would keep them for good."""
    c10d._unregister_all_process_groups()


# The code objects of ``dist.send`` and ``dist.recv``, under their decorators.
BLOCKING_CALLS = tuple(inspect.unwrap(function).__code__ for function in (c10d.send, c10d.recv))
# The calls that carry objects. They send memory that nobody has written, behind the pickle.
OBJECT_CALLS = {name for name in dir(c10d) if "_object" in name and not name.startswith("_")}
# The files whose frames lie between a caller of torch.distributed and our group.
CALL_FILES = {c10d.__file__, c10d_logger.__file__}


def in_comm_hook() -> bool:
    """Whether DDP's reducer has called a communication hook, and the caller is at work for it."""
    for frame, _ in walk_stack(sys._getframe(1)):
        if any(isinstance(value, dist.GradBucket) for value in frame.f_locals.values()):
            return True
    return False


def after_backward(callback: Callable[[], None]) -> bool:
    """Call back when the backward pass that this thread is in has ended; False if in none."""
    try:
        torch.autograd.Variable._execution_engine.queue_callback(callback)
    except RuntimeError:  # "Final callbacks can only be installed during backward pass."
        return False
    return True


def store() -> dist.Store:
    """A store of its own for whatever asks a group for one. Nobody else writes to it, so its
    timeout is short.
    """
    made = dist.HashStore()
    made.set_timeout(timedelta(milliseconds=10))
    return made


# ---- modes of the rank's own --------------------------------------------------------------------

# How many modes the calling thread is in. They would see what we do with tensors, while they see
# nothing of a backend in C++. Only function modes see that somebody asks for an address.
dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
function_modes: Callable[[], int] = torch._C._len_torch_function_stack


def outside_of_modes(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function outside of all modes that the calling thread is in."""
    if not dispatch_modes() and not function_modes():
        return function(*args, **kwargs)
    left: list[tuple[Any, Any]] = [
        *((dispatching, dispatching._pop_mode()) for _ in range(dispatch_modes())),
        *((overrides, overrides._pop_mode()) for _ in range(function_modes())),
    ]
    try:
        return function(*args, **kwargs)
    finally:
        for modes, mode in reversed(left):
            modes._push_mode(mode)


# ---- tensors without values: see true_size/ -----------------------------------------------------

ASKS_FOR_VALUES = (
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
)
# Operators that call a group: of these the mode would make up the result, and no group be called.
FUNCTIONAL_COLLECTIVES = ("_c10d_functional", "_dtensor")
IN_CPP = torch._C.DispatchKey.CompositeExplicitAutograd  # where their kernels are


def find_shape() -> tuple[Any, str]:
    """Where DTensor works out the shape of an operator's result."""
    from torch.distributed.tensor import _sharding_prop

    return _sharding_prop.ShardingPropagator, "_propagate_tensor_meta_non_cached"


def share_loss(leave_out: Any) -> list[tuple[Any, str, Any]]:
    """What is replaced for loss_parallel(), which adds to what DTensor handles for all ranks, and
    takes it away again when other ranks are inside still.
    """
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import loss

    handlers: Any = dict  # a copy, which an execution has to itself
    return [
        (loss, "_disable_custom_loss_ops", leave_out),
        (DTensor._op_dispatcher, "_custom_op_handlers", handlers),
    ]


# Which kinds of tensors optimizers, and what clips gradients, take many of at once on GPUs.
FOREACH_TYPES = [(module, "_foreach_supported_types") for module in (optimizer, _foreach_utils)]


# Where DDP reads what ranks tell one another, in C++: whether parameters have the same shapes, and
# in which order gradients came in the first step.
READ_BY_DDP = [
    (parallel, "_verify_param_shape_across_processes"),
    (dist.Reducer, "_rebuild_buckets"),
]

# ---- private copies ---------------------------------------------------------------------------


def unpickle_private(pickled: bytes, loads: Callable[[bytes], Any]) -> Any:
    """Unpickle with classes of its own.

    cloudpickle remembers the classes that it has carried and hands out the same object again;
    ranks would share its attributes.
    """
    with by_value._DYNAMIC_CLASS_TRACKER_LOCK:
        known = by_value._DYNAMIC_CLASS_TRACKER_BY_ID
        by_value._DYNAMIC_CLASS_TRACKER_BY_ID = type(known)()
    try:
        return loads(pickled)
    finally:
        by_value._DYNAMIC_CLASS_TRACKER_BY_ID = known


def recast_as_callers(error: BaseException | None) -> None:
    """Make an exception one of the caller's class, where a rank has imported that for itself."""
    while error is not None:
        kind = type(error)
        known = getattr(sys.modules.get(kind.__module__), kind.__qualname__, kind)
        if known is not kind and getattr(known, "__basicsize__", 0) == kind.__basicsize__:
            error.__class__ = known
        error = error.__cause__


def swap_environ(data: Any) -> None:
    """Put another mapping behind ``os.environ``."""
    os.environ._data = data  # type: ignore[attr-defined]


def _folder() -> list[str]:
    try:
        return [os.getcwd()]
    except OSError:  # it has been removed
        return []


def _dtensor_random() -> Any:
    """The module, if a program has imported it; if not, something without its settings."""
    return sys.modules.get("torch.distributed.tensor._random", SimpleNamespace())


# What is one for the whole process, where a rank expects it to be its own: what sets it, and what
# to call that with for what there is now. Whether gradients are kept, inference, autocast, modes
# and the default device are each thread's.
_SETTINGS: list[tuple[Callable[..., Any], Callable[[], list[Any]]]] = [
    (torch.set_default_dtype, lambda: [torch.get_default_dtype()]),
    (
        lambda on, only: torch.use_deterministic_algorithms(on, warn_only=only),
        lambda: [
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ],
    ),
    (torch.set_float32_matmul_precision, lambda: [torch.get_float32_matmul_precision()]),
    (
        torch.set_anomaly_enabled,
        lambda: [torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()],
    ),
    (vars(torch._tensor_str.PRINT_OPTS).update, lambda: [dict(vars(torch._tensor_str.PRINT_OPTS))]),
    (os.chdir, _folder),
    # Many a script lets no rank but the first print.
    (partial(setattr, builtins, "print"), lambda: [builtins.print]),
    # In which module's forward a rank is: torch.compile asks, and a rank that is put to sleep in
    # there would leave its own behind.
    (
        lambda module: setattr(DistributedDataParallel, "_active_ddp_module", module),
        lambda: [DistributedDataParallel._active_ddp_module],
    ),
    # What keeps random numbers of DTensors alike: the first that a rank draws makes it.
    (
        lambda tracker: setattr(_dtensor_random(), "_rng_tracker", tracker),
        lambda: [getattr(_dtensor_random(), "_rng_tracker", None)],
    ),
]


def settings() -> list[Any]:
    return [read() for _, read in _SETTINGS]


def change_settings(wanted: list[Any]) -> list[Any]:
    """Put these in force; returns those that were."""
    before = settings()
    if wanted != before:
        for (put, _), old, new in zip(_SETTINGS, before, wanted, strict=True):
            if new != old and new:
                put(*new)
    return before


def shared_generators() -> list[tuple[Any, dict[str, str], type]]:
    """Modules whose functions draw from one hidden generator: the module, its functions with the
    method that each stands for, and how to make another such generator.
    """
    import numpy

    def methods(module: Any, kind: type) -> dict[str, str]:
        both = (name for name in dir(module) if callable(getattr(kind, name, None)))
        return {name: name for name in both if not name.startswith("_")}

    of_numpy = methods(numpy.random, numpy.random.RandomState)
    of_numpy |= {"ranf": "random_sample", "sample": "random_sample"}
    return [
        (random, methods(random, random.Random), random.Random),
        (numpy.random, of_numpy, numpy.random.RandomState),
    ]
