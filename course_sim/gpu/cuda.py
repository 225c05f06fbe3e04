"""What ranks answer when a script asks for CUDA: simulate(…, backend="nccl", cuda=True).

Each row of ``_ANSWERS`` is one thing that scripts ask, and what a rank does then. Where tensors lie
is in tensor_place.py and placement.py, streams and events are in streams.py. What cannot be played
is refused in a line that names it.
"""

from __future__ import annotations

import functools
import os
import time
import types
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint as checkpoint
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as fsdp_collectives
from torch.distributed.tensor import _random as dtensor_random
from torch.utils.data import DataLoader

from course_sim.gpu.placement import keeps_on
from course_sim.gpu.tensor_place import find_place, name_place
from course_sim.isolation import compat
from course_sim.isolation.private import Place, for_ranks
from course_sim.rank import Rank, current

MEMORY = 80 << 30  # bytes of a modelled GPU
_CAPABILITY = (9, 0)  # an H100's
_NAME = "modelled GPU"
_BEGAN = time.time()
_EAGER = "torch.compile is played eagerly here: the same values, not the same kernels\n"


def _answer(answer: Any) -> Callable[..., Any]:
    return lambda rank, /, *_, **__: answer


def _count_gpus(rank: Rank, /) -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _tell_date(rank: Rank, /) -> float:
    """Seconds since 1970: scripts name files by them."""
    return _BEGAN + rank.scheduler.read_clock()


def _choose_gpu(rank: Rank, /, device: Any) -> None:
    if (place := find_place(device, rank)) is not None:
        rank.gpu.index = place


@contextmanager
def _be_on(rank: Rank, /, device: Any) -> Iterator[None]:
    """``with torch.cuda.device(1):``"""
    before = rank.gpu.index
    _choose_gpu(rank, device)
    try:
        yield
    finally:
        rank.gpu.index = before


def _current_gpu(rank: Rank, /) -> int:
    return rank.gpu.index


def _describe(rank: Rank, /, device: Any = None) -> Any:
    major, minor = _CAPABILITY
    return types.SimpleNamespace(
        name=_NAME, total_memory=MEMORY, multi_processor_count=132, major=major, minor=minor
    )


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
def _draw_by_place(rank: Rank, /, tracker: Any, spec: Any, generator: Any = None) -> Iterator[None]:
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


def _replace_compile_of_module(rank: Rank, /, model: Any, *_: Any, **__: Any) -> None:
    _compile(rank, model)


def _replace_init(change: Callable[[list, dict], None]) -> Callable[[Any], Any]:
    """An ``__init__`` whose arguments are changed in ranks."""

    def replace(original: Any) -> Any:
        def init(_: Rank, /, *args: Any, **kwargs: Any) -> None:
            given = list(args)
            change(given, kwargs)
            original(*given, **kwargs)

        return for_ranks(init)(original)

    return replace


def _play_loader_here(_: list, kwargs: dict) -> None:
    """A loader's workers are played in the rank: a simulated rank starts no processes."""
    kwargs["num_workers"] = 0
    for name in ("pin_memory", "prefetch_factor", "persistent_workers", "multiprocessing_context"):
        kwargs.pop(name, None)


def _cast_on_cpu(args: list, kwargs: dict) -> None:
    """autocast: of the CPU, which is where values are computed."""
    if len(args) > 1:
        args[1] = "cpu"
    else:
        kwargs["device_type"] = "cpu"


def _replace_load(original: Any) -> Any:
    """``torch.load``: what was saved on a GPU comes back there, if ``map_location`` is silent."""

    def load(rank: Rank, /, *args: Any, map_location: Any = None, **kwargs: Any) -> Any:
        if callable(map_location):
            return original(*args, map_location=map_location, **kwargs)

        def put(storage: Any, saved_on: str) -> Any:
            to = map_location.get(saved_on) if isinstance(map_location, dict) else map_location
            storage.place = find_place(to or saved_on, rank)
            return storage

        return original(*args, map_location=put, **kwargs)

    return for_ranks(load)(original)


def _replace_tag(original: Any) -> Any:
    """What torch.save notes of where a tensor was."""

    def tag(rank: Rank, /, storage: Any) -> str:
        place = getattr(storage, "place", None)
        return original(storage) if place is None else str(name_place(place))

    return for_ranks(tag)(original)


def _replace_generator(original: Any) -> Any:
    """torch.Generator, which may be one of a GPU."""

    class Generator(original):
        def __new__(cls, device: Any = "cpu") -> Any:
            made = original.__new__(cls)
            made.device = torch.device(device)
            return made

        device = torch.device("cpu")

    return for_ranks(lambda rank, device="cpu": Generator(device))(original)


def _replace_wrapper(original: Any) -> Any:
    """A tensor that wraps others, as one that a collective will fill: it is where these are."""

    def make(_: Rank, /, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        real = "cpu" if device is not None and torch.device(device).type == "cuda" else device
        return original(*args, device=real, **kwargs)

    return for_ranks(make)(original)


def _compare_without_devices(fns: dict[str, Callable]) -> dict[str, Callable]:
    """What activation checkpointing compares of a tensor and the one computed anew. The first is
    looked at before anybody can have marked it.
    """

    def describe(x: torch.Tensor) -> dict[str, Any]:
        said = fns["default"](x)
        return said if current() is None else said | {"device": ""}

    return {**fns, "default": describe}


def _own_default_backend(rank: Rank, /, device: Any) -> str:
    return "gloo" if torch.device(device).type == "cpu" else "nccl"


_Rows = list[tuple[Any, str, Callable[..., Any]]]
_ANSWERS: _Rows = [
    (time, "time", _tell_date),
    (time, "time_ns", lambda rank: int(_tell_date(rank) * 1e9)),
    (torch.cuda, "is_available is_bf16_supported", _answer(True)),
    (torch.cuda, "is_initialized", lambda rank: rank.gpu.in_use),
    (torch.cuda, "is_current_stream_capturing is_tf32_supported", _answer(False)),
    (torch.cuda, "_lazy_init init empty_cache ipc_collect reset_peak_memory_stats", _answer(None)),
    (torch.cuda, "manual_seed manual_seed_all", _seed_gpu),
    (torch.cuda, "initial_seed", lambda rank: rank.gpu.random[0]),
    (torch.cuda, "reset_max_memory_allocated reset_accumulated_memory_stats", _answer(None)),
    (torch.cuda, "set_per_process_memory_fraction", _answer(None)),
    (torch.cuda, "memory_allocated max_memory_allocated memory_reserved", _answer(0)),
    (torch.cuda, "max_memory_reserved utilization", _answer(0)),
    (torch.cuda, "mem_get_info", _answer((MEMORY, MEMORY))),
    (torch.cuda, "memory_stats", _answer({})),
    (torch.cuda, "memory_summary", _answer("")),
    (torch.cuda, "device_count", _count_gpus),
    (torch.cuda, "current_device", _current_gpu),
    (torch.cuda, "set_device", _choose_gpu),
    (torch.cuda, "device", _be_on),
    (torch.cuda, "get_device_name", _answer(_NAME)),
    (torch.cuda, "get_device_capability", _answer(_CAPABILITY)),
    (torch.cuda, "get_device_properties", _describe),
    (torch.cuda, "get_arch_list", _answer(["sm_90"])),
    (torch.cuda, "get_rng_state", _get_generator_state),
    (torch.cuda, "set_rng_state", _set_generator_state),
    (torch.accelerator, "is_available", _answer(True)),
    (torch.accelerator, "device_count", _count_gpus),
    (torch.accelerator, "current_accelerator", _answer(torch.device("cuda"))),
    (torch.accelerator, "current_device_index current_device_idx", _current_gpu),
    (torch.accelerator, "set_device_index set_device_idx", _choose_gpu),
    (torch.accelerator, "current_stream", lambda rank, device=None: rank.gpu.current),
    (torch.accelerator, "memory_allocated max_memory_allocated memory_reserved", _answer(0)),
    (torch.accelerator, "empty_cache reset_peak_memory_stats", _answer(None)),
    (dtensor_random.OffsetBasedRNGTracker, "_distribute_region", _draw_by_place),
    (fsdp_collectives, "record_grad_output_stream", _answer(None)),
    (torch._C, "_get_accelerator", _answer(torch.device("cuda"))),
    (torch, "compile", _compile),
    (torch.nn.Module, "compile", _replace_compile_of_module),
    (dist, "get_default_backend_for_device", _own_default_backend),
    (dist.distributed_c10d, "get_default_backend_for_device", _own_default_backend),
]
# What stays what it is, with other arguments, or with the rank's mode on.
_CHANGED: list[Place] = [
    (DataLoader, "__init__", _replace_init(_play_loader_here)),
    (torch.autocast, "__init__", _replace_init(_cast_on_cpu)),
    (torch, "load", _replace_load),
    (torch, "Generator", _replace_generator),
    (torch.serialization, "location_tag", _replace_tag),
    (torch.Tensor, "_make_wrapper_subclass", _replace_wrapper),
    (torch.Tensor, "record_stream", for_ranks(_answer(None))),
    (checkpoint, "_allowed_determinism_checks_to_fns", _compare_without_devices),
    (torch.autograd, "_engine_run_backward", keeps_on),
    (dtensor_random.OffsetBasedRNGTracker, "_get_device_state", keeps_on),
    (*compat.find_shape(), keeps_on),
]


@functools.cache
def places() -> list[Place]:
    """What of torch is replaced in ranks that say "cuda"; these go after those of streams.py."""
    answers = [
        (owner, name, for_ranks(answer))
        for owner, names, answer in _ANSWERS
        for name in names.split()
        if hasattr(owner, name)  # in this torch
    ]
    return [*answers, *_CHANGED]
