"""What is asked of a world, and until when, checked before anything is started."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from course_lib.errors import CourseError

MOST_RANKS = 64
DEFAULT_RANKS = 4


@dataclass(frozen=True)
class Plan:
    """A world to start; one that was started for an equal plan serves as well."""

    world_size: int
    backend: str
    init: bool  # whether its ranks form their process group before they are given a function


class Deadline:
    """The moment, on time.perf_counter(), at which ``seconds`` will have passed."""

    def __init__(self, seconds: float) -> None:
        if not (isinstance(seconds, (int, float)) and 0 < seconds < float("inf")):
            raise CourseError(f"timeout={seconds!r}: give a number of seconds above zero")
        self.seconds, self.at = seconds, time.perf_counter() + seconds

    @property
    def passed(self) -> bool:
        return time.perf_counter() > self.at


def make_plan(world_size: int | None, backend: str | None, init: bool) -> Plan:
    """Fill in the defaults; raises CourseError for a world that cannot be."""
    if not hasattr(dist.ProcessGroup, "register_pre_hook"):
        raise CourseError(f"run() needs torch 2.14 or later, and this is torch {torch.__version__}")
    backend = (backend or "gloo").lower()
    if backend not in ("gloo", "nccl"):
        raise CourseError(f"backend={backend!r} is not one that run() starts: use 'gloo' or 'nccl'")
    size = _nccl_size(world_size) if backend == "nccl" else _size(world_size, DEFAULT_RANKS)
    return Plan(size, backend, init)


def _size(world_size: Any, default: int) -> int:
    if world_size is None:
        return default
    if not isinstance(world_size, int) or isinstance(world_size, bool) or world_size < 1:
        raise CourseError(
            f"world_size={world_size!r}: a world needs a whole number of ranks, 1 or more"
        )
    if world_size > MOST_RANKS:
        raise CourseError(
            f"world_size={world_size} asks for {world_size} processes, and run() starts at most "
            f"{MOST_RANKS}: use simulate(fn, world_size={world_size}) for larger worlds"
        )
    return world_size


def _nccl_size(world_size: Any) -> int:
    if not dist.is_nccl_available():
        raise CourseError(f"this torch ({torch.__version__}) has no NCCL: use backend='gloo'")
    gpus = torch.cuda.device_count()
    if gpus == 0:
        raise CourseError(
            "backend='nccl' needs a GPU, and this machine shows none: use backend='gloo'"
        )
    size = _size(world_size, gpus)
    if size > gpus:
        raise CourseError(
            f"world_size={size} asks for {size} GPUs, this machine has {gpus}: "
            f"use backend='gloo' or world_size={gpus}"
        )
    return size
