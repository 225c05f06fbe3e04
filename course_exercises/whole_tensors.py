"""Where tensors travel whole: cases with a root, what is special about them, lists of tensors."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from course_check.cases import SLOW, Case, crowd, hostile, rows
from course_check.compare import ANYTHING
from course_exercises.declare import marked


def worlds_and_lengths(case: Case) -> set[str]:
    """What is special about them where nothing is cut into parts."""
    return marked({"empty": case.length == 0, "no power of two": case.world & (case.world - 1) > 0})


def rooted_core(root: str) -> Callable[[random.Random], list[Case]]:
    """Cases of core, for an argument of this name (``src``, ``dst``)."""
    return lambda rng: [
        *rows(root, (2, 1, 0), (2, 1, 1), (3, 1, 2), (4, 1, 0)),
        *rows(root, (4, 3, 1), (5, 2, 0), (5, 2, 3)),
        *rows(root, (5, rng.randrange(9, 300), rng.randrange(5)), numbers="random"),
        *rows(root, (3, 2, 1), numbers="random", calls=2, later=({root: 0},)),
    ]


def rooted_sturdy(root: str) -> Callable[[random.Random], list[Case]]:
    """Of mixed layouts rank 1 has the odd one, and is one that receives."""
    hostile_root = {"src": 0, "dst": 1}[root]
    later = tuple({root: rank} for rank in (2, 0, 0, 2))
    return lambda rng: [
        *rows(root, (1, 1, 0), (3, 0, 1), (crowd(rng), 2, 3)),
        *hostile(3, 6, layouts=(2, 4), options={root: hostile_root}),
        *rows(root, (5, 2, 2), jitter=20.0, calls=5, later=later),
    ]


def both_regimes(worlds: Sequence[int], **rest: Any) -> list[Case]:
    """Cases in which only latencies count, and then some in which only bytes do. An answer that is
    quick in the ones may stand in a queue in the others."""
    quick, long = ({"length": 2}, {"length": 250, "bandwidth": SLOW})
    return [Case(world, **kind, **rest) for kind in (quick, long) for world in worlds]


def left_out(tensors: list, rank: int) -> list:
    return tensors[:rank] + tensors[rank + 1 :]


OWN_MISSING = (
    "The others' tensors are all there, and a rank's own is not, or something else stands in its "
    "place. It needs no message to get into the list."
)
WITHOUT_OWN = [  # a right function's knob
    {"own": left_out},
    {"own": lambda tensors, rank: [*tensors[:rank], ANYTHING, *tensors[rank + 1 :]]},
]
