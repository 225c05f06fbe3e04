"""Programs in which one rank leaves a call out, or makes one more; with ``right`` nobody does."""

from __future__ import annotations

import sys
from collections.abc import Callable

import cloudpickle
import torch
import torch.distributed as dist

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def _first(right: bool) -> bool:
    """Whether this rank does what all should do, or none."""
    return right or dist.get_rank() == 0


def _step(grad: torch.Tensor) -> None:
    dist.all_reduce(grad)


def evaluation_on_one_rank(right: bool) -> None:
    for step in range(3):
        _step(torch.ones(4, 4))
        if step == 1 and _first(right):
            dist.all_reduce(torch.ones(2))  # how many were right, of how many
    _step(torch.ones(4, 4))


def batch_less(right: bool) -> None:
    for _ in range(2 + _first(right)):
        _step(torch.ones(4, 4))
    dist.all_reduce(torch.ones(1))


def steps_of_its_own(right: bool) -> None:
    for _ in range(2 + _first(right)):
        _step(torch.ones(4))


def early_continue(right: bool) -> None:
    for step in range(3):
        if step == 1 and not _first(right):
            continue
        dist.broadcast(torch.ones(step + 1), src=0)
        dist.all_reduce(torch.ones(9))


def logging_on_one_rank(right: bool) -> None:
    if _first(right):
        dist.all_reduce(torch.ones(1))  # the loss
    dist.all_reduce(torch.ones(5))


def logging_of_like_size(right: bool) -> None:
    """What is logged meets a gradient of one element, and fits."""
    if _first(right):
        dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(5))


def objects_on_one_rank(right: bool) -> None:
    if _first(right):
        box = [{"step": 7}]
        dist.broadcast_object_list(box, src=0)
    dist.broadcast(torch.ones(3), src=0)


def in_a_subgroup(right: bool) -> None:
    size = dist.get_world_size()
    rows = [dist.new_group([r, r + 1]) for r in range(0, size - 1, 2)]
    if dist.get_rank() < 2:
        for step in range(3):
            if step < 2 or _first(right):
                dist.all_reduce(torch.ones(4), group=rows[0])
        dist.all_reduce(torch.ones(1), group=rows[0])


def root_that_moves(right: bool) -> None:
    if _first(right):
        dist.broadcast(torch.ones(3), src=0)
    dist.broadcast(torch.ones(3), src=1)


# What a report of each has to say; of a Deadlock it is the ranks' numbers of calls.
LEFT_OUT = "makes a call that the other leaves out"
MAY_BE = "may leave out a call that the other makes"
PROGRAMS: dict[Callable[[bool], None], tuple[str, ...]] = {
    evaluation_on_one_rank: (LEFT_OUT, "last at one line at collective call 2:"),
    batch_less: (LEFT_OUT, "rank 0 made 3 collective calls, rank 1 made 2."),
    steps_of_its_own: ("In this group, rank 0 made 3 collective calls, rank 1 made 2.",),
    early_continue: (MAY_BE, "last at one line at collective call 2:"),
    logging_on_one_rank: (LEFT_OUT,),
    logging_of_like_size: (LEFT_OUT, "had parted before, at collective call 1:"),
    objects_on_one_rank: (LEFT_OUT, "calls broadcast_object_list(src=0)"),
    in_a_subgroup: (LEFT_OUT, "rank 0 made 3 collective calls, rank 1 made 2."),
    root_that_moves: (LEFT_OUT,),
}
CURES_OF_OTHERS = ("Convert one", "number of elements", "same root", "same reduce op")
