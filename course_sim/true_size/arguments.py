"""Whether simulate() was asked for a run at its true size, and for one that there can be."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from course_lib.errors import CourseError
from course_sim.true_size.hardware import GPU


def choose_played(gpu: Any, play: Any, backend: str, world_size: int) -> Collection[int] | None:
    """Which ranks are played, in order; None for all. Raises CourseError for a bad argument."""
    if gpu is not None and not isinstance(gpu, GPU):
        raise CourseError(f"gpu={gpu!r}: give a GPU, as GPU.h100()")
    if gpu is not None and backend != "nccl":
        raise CourseError("gpu=…: GPUs are modelled with NCCL's rules: say backend='nccl', too")
    if play is None:
        return None
    if gpu is None:
        raise CourseError(
            f"play={play!r}: ranks can stand for others where tensors have no values: say "
            "gpu=GPU.h100(), too"
        )
    numbers = list(play) if isinstance(play, Collection) else []
    if not numbers or any(type(r) is not int or not 0 <= r < world_size for r in numbers):
        raise CourseError(f"play={play!r}: give one or more ranks, 0 to {world_size - 1}, as [0]")
    return sorted(set(numbers))
