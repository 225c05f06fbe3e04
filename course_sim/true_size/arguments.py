"""Checks what simulate() is asked for: which ranks are played on which GPU, and how many there are.

The engine calls ``choose_played`` and ``most_ranks`` before anything else is made.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from course_lib.errors import CourseError
from course_sim.true_size.hardware import GPU

MOST_RANKS = 8192
BYTES_PER_RANK = 400_000  # of memory, for a thread with its stack and records; measured at 1024
OTHERS = 8  # so many ranks that are not played take less than one that is: 17 kB each, measured


def most_ranks(played: Collection[int] | None) -> int:
    """How many ranks a world may have on this machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = min(MOST_RANKS, memory // 2 // BYTES_PER_RANK)
    return most if played is None or len(played) > most else OTHERS * most


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
