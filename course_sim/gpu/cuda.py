"""What ranks answer when a script asks for CUDA: simulate(…, backend="nccl", cuda=True).

Each row of ``_ANSWERS`` is one thing that scripts ask, and what a rank does then. Where tensors lie
is in tensor_place.py and placement.py, streams and events are in streams.py. What is in no row here
stays torch's own, which says on a machine without a GPU that there is none.
"""

from __future__ import annotations

import functools
import itertools
import time
import types
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint as checkpoint
from torch._functorch import apis
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as fsdp_collectives
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import _random as dtensor_random
from torch.utils.data import DataLoader

from course_sim.gpu.placement import guesses_place, keeps_on, marks_results
from course_sim.gpu.tensor_place import find_gpus, find_place, name_place, place_of
from course_sim.isolation import compat
from course_sim.isolation.private import Patch, always, for_ranks
from course_sim.rank import Rank, current

_BEGAN = time.time()  # when this module was first needed: virtual time is counted from there
_EAGER = "torch.compile is played eagerly here: the same values, not the same kernels\n"
# What scripts are told of a modelled GPU, as of an H100 with 80 GB; nothing is charged by it.
MEMORY = 80 << 30  # bytes
_GPU = types.SimpleNamespace(
    name="modelled GPU", total_memory=MEMORY, multi_processor_count=132, major=9, minor=0
)


def _changes(change: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function that is ``change(original, rank, …)`` in ranks."""
    return lambda original: for_ranks(functools.partial(change, original))(original)


def _tell_date(rank: Rank, /) -> float:
    """Seconds since 1970: scripts name files by them."""
    return _BEGAN + rank.scheduler.read_clock()


def _choose_gpu(rank: Rank, /, device: Any) -> None:
    """``torch.cuda.set_device``"""
    if (place := find_place(device, rank)) is not None:
        rank.gpu.index = place


@contextmanager
def _be_on(rank: Rank, /, device: Any) -> Iterator[None]:
    """``with torch.cuda.device(1):`` makes that GPU the current one."""
    before = rank.gpu.index
    _choose_gpu(rank, device)
    try:
        yield
    finally:
        rank.gpu.index = before


def _seed_gpu(rank: Rank, /, seed: int) -> None:
    rank.gpu.random = seed, 0


def _get_generator_state(rank: Rank, /, device: Any = None) -> torch.Tensor:
    """A seed and an offset, with which DTensor computes. All else draws from the rank's generator
    for its host.
    """
    return torch.tensor(rank.gpu.random).view(torch.uint8)


def _set_generator_state(rank: Rank, /, state: torch.Tensor, device: Any = None) -> None:
    seed, offset = state.view(torch.int64).tolist()
    rank.gpu.random = seed, offset


@contextmanager
def _draw_by_offset(
    rank: Rank, /, tracker: Any, spec: Any, generator: Any = None
) -> Iterator[None]:
    """In here a shard of a DTensor draws: equal shards alike, whichever rank has them."""
    start, end = tracker._compute_rng_offsets(spec)
    seed, offset = rank.gpu.random
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(zlib.crc32(repr((seed, offset + start)).encode()))
        yield
    rank.gpu.random = seed, offset + end


def _compile(rank: Rank, /, model: Any = None, **how: Any) -> Any:
    """Play it eagerly, and say so once."""
    if model is None:
        return lambda function: function
    if _EAGER not in rank.pages.getvalue():
        rank.pages.write(_EAGER)
    return model


@_changes
def _init_loader(original: Any, _: Rank, loader: Any, *args: Any, **kwargs: Any) -> None:
    """A loader's workers are played in the rank: a simulated rank starts no processes."""
    forks = not kwargs.pop("multiprocessing_context", None)
    loader.plays_forks = bool(kwargs.pop("num_workers", 0)) and forks
    for name in ("prefetch_factor", "persistent_workers"):
        kwargs.pop(name, None)
    original(loader, *args, **kwargs)


@_changes
def _get_iterator(original: Any, rank: Rank, loader: Any) -> Any:
    """A loader's iterator, whose data are fetched as a forked worker would."""
    iterator = original(loader)
    fetch = iterator._dataset_fetcher.fetch

    def fetch_as_worker(*args: Any) -> Any:
        rank.gpu.in_worker = loader.plays_forks
        try:
            return fetch(*args)
        finally:
            rank.gpu.in_worker = False

    iterator._dataset_fetcher.fetch = fetch_as_worker
    return iterator


def _work_at_once(_: Rank, pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Future:
    """What a thread of a pool would do, as in reading data: a simulated rank starts no threads."""
    done: Future = Future()
    try:
        done.set_result(function(*args, **kwargs))
    except Exception as error:
        done.set_exception(error)
    return done


@_changes
def _cast_on_cpu(original: Any, _: Rank, it: Any, *args: Any, **kwargs: Any) -> None:
    """autocast: of the CPU, which is where values are computed."""
    kwargs.pop("device_type", None)
    original(it, "cpu", *args[1:], **kwargs)


@_changes
def _profile_cpu(original: Any, _: Rank, it: Any, *args: Any, **kwargs: Any) -> None:
    """A profiler: of the CPU, as there are no kernels of a GPU to see."""
    original(it, *args, **(kwargs | {"use_device": None, "use_cpu": True}))


@_changes
def _load(original: Any, rank: Rank, *args: Any, map_location: Any = None, **kwargs: Any) -> Any:
    """``torch.load``: what was saved on a GPU comes back there, if ``map_location`` is silent."""

    def put(storage: Any, saved_on: str) -> Any:
        to = map_location.get(saved_on) if isinstance(map_location, dict) else map_location
        storage.place = find_place(to or saved_on, rank)
        return storage

    there = map_location if callable(map_location) else put
    return original(*args, map_location=there, **kwargs)


@_changes
def _tag(original: Any, _: Rank, storage: Any) -> str:
    """What torch.save notes of where a tensor was."""
    place = getattr(storage, "place", None)
    return original(storage) if place is None else str(name_place(place))


def _replace_generator(original: Any) -> Any:
    """torch.Generator, which may be one of a GPU. It stays a class, for all who name it as one."""

    class Kind(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, it: Any) -> bool:
            return isinstance(it, original)

    class Generator(original, metaclass=Kind):
        device = torch.device("cpu")

        def __new__(cls, device: Any = "cpu") -> Any:
            if current() is None:
                return original(device)
            made = original.__new__(cls)
            made.device = torch.device(device)
            return made

    return Generator


@_changes
def _wrap(original: Any, _: Rank, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """A tensor that wraps another, as one that a collective will fill, lies where that one lies."""
    real = "cpu" if device is not None and torch.device(device).type == "cuda" else device
    return original(*args, device=real, **kwargs)


def _compare_without_devices(fns: dict[str, Callable]) -> dict[str, Callable]:
    """What activation checkpointing compares of a tensor and of the same one computed again. The
    device is left out: it looks at the first one before the mode has marked it.
    """
    default = fns["default"]
    return {**fns, "default": lambda x: default(x) | ({"device": ""} if current() else {})}


def _put_fake_on_host(rank: Rank, /, *args: Any) -> torch.device:
    """torch.export traces a model with fake tensors; those of a GPU need a driver."""
    device: torch.device = args[-1]  # behind a tensor, if one is asked
    return torch.device("cpu") if device.type == "cuda" else device


def _say_fake_device(original: property) -> property:
    """The device of a tensor that has no values, which is no function that a mode is asked about.
    The mode that works out its shapes needs the real one.
    """

    def say(tensor: Any) -> torch.device:
        seen = compat.function_modes() and not getattr(tensor.fake_mode, "inside_operator", True)
        place, real = place_of(tensor) if seen else None, original.__get__(tensor)
        return real if place is None or real.type != "cpu" else name_place(place)

    return property(say)


def _own_backend(rank: Rank, /, device: Any) -> str:
    """The backend for a device; torch itself names one that its build has."""
    return "gloo" if torch.device(device).type == "cpu" else "nccl"


_CUDA, _BOTH = (torch.cuda,), (torch.cuda, torch.accelerator)
_NOTHING = (
    "_lazy_init init empty_cache ipc_collect reset_peak_memory_stats reset_max_memory_allocated "
    "reset_accumulated_memory_stats set_per_process_memory_fraction"
)
_CURRENT = "current_device current_device_index current_device_idx"
_MEMORY = "memory_allocated max_memory_allocated memory_reserved max_memory_reserved utilization"
# Owners, names and what a rank answers.
_ANSWERS: list[tuple[tuple[Any, ...], str, Callable[..., Any]]] = [
    ((time,), "time", _tell_date),
    ((time,), "time_ns", lambda rank: int(_tell_date(rank) * 1e9)),
    (_BOTH, "is_available is_bf16_supported", always(True)),
    (_BOTH, _NOTHING, always(None)),
    (_BOTH, _MEMORY, always(0)),
    (_BOTH, "device_count", lambda rank: len(find_gpus(rank))),
    (_BOTH, _CURRENT, lambda rank: rank.gpu.index),
    (_BOTH, "set_device set_device_index set_device_idx", _choose_gpu),
    (_BOTH, "current_stream", lambda rank, device=None: rank.gpu.current),
    (_CUDA, "is_initialized", lambda rank: bool(rank.gpu.used)),
    (_CUDA, "is_current_stream_capturing is_tf32_supported", always(False)),
    (_CUDA, "manual_seed manual_seed_all", _seed_gpu),
    (_CUDA, "initial_seed", lambda rank: rank.gpu.random[0]),
    (_CUDA, "mem_get_info", always((MEMORY, MEMORY))),
    (_CUDA, "memory_stats", lambda rank, device=None: Counter()),  # 0, whatever is asked
    (_CUDA, "memory_summary", always("")),
    (_CUDA, "device", _be_on),
    (_CUDA, "get_device_name", always(_GPU.name)),
    (_CUDA, "get_device_capability", always((_GPU.major, _GPU.minor))),
    (_CUDA, "get_device_properties", always(_GPU)),
    (_CUDA, "get_arch_list", always(["sm_90"])),
    (_CUDA, "can_device_access_peer", always(True)),
    ((torch.backends.cudnn,), "is_acceptable", always(False)),
    (_CUDA, "get_rng_state", _get_generator_state),
    (_CUDA, "set_rng_state", _set_generator_state),
    ((torch.accelerator,), "current_accelerator", always(torch.device("cuda"))),
    ((torch._C,), "_get_accelerator", always(torch.device("cuda"))),
    ((dtensor_random.OffsetBasedRNGTracker,), "_distribute_region", _draw_by_offset),
    ((fsdp_collectives,), "record_grad_output_stream", always(None)),
    ((FakeTensor,), "_normalize_fake_device", _put_fake_on_host),
    ((torch,), "set_default_device", lambda rank, device: setattr(rank.gpu, "default", device)),
    ((torch,), "get_default_device", lambda rank: torch.empty(0).device),
    ((torch, torch.nn.Module), "compile", _compile),
    ((dist, dist.distributed_c10d), "get_default_backend_for_device", _own_backend),
    ((ThreadPoolExecutor,), "submit", _work_at_once),
]
# Functions that are still torch's, called with other arguments or with the rank's mode on.
_CHANGED: list[Patch] = [
    (DataLoader, "__init__", _init_loader),
    (DataLoader, "_get_iterator", _get_iterator),
    (DTensor, "from_local", keeps_on),
    (torch.autocast, "__init__", _cast_on_cpu),
    (torch.autograd.profiler.profile, "__init__", _profile_cpu),
    (torch, "load", _load),
    (torch, "Generator", _replace_generator),
    (torch.serialization, "location_tag", _tag),
    (torch.Tensor, "_make_wrapper_subclass", _wrap),
    (FakeTensor, "device", _say_fake_device),
    (torch.Tensor, "record_stream", for_ranks(always(None))),
    (checkpoint, "_allowed_determinism_checks_to_fns", _compare_without_devices),
    (torch.autograd, "_engine_run_backward", guesses_place),
    (apis, "vmap_impl", marks_results),
    (dtensor_random.OffsetBasedRNGTracker, "_get_device_state", keeps_on),
    (*compat.find_shape(), keeps_on),
]


@functools.cache
def patches() -> list[Patch]:
    """What of torch is replaced in ranks that say "cuda"; these go after those of streams.py."""
    answers = [
        (owner, name, for_ranks(answer))
        for owners, names, answer in _ANSWERS
        for owner, name in itertools.product(owners, names.split())
        if hasattr(owner, name)  # in this torch
    ]
    return [*answers, *_CHANGED, *compat.share_loss(for_ranks(always(None)))]
