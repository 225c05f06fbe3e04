"""Diagnosis: 02.damages-input

The block of the argument is the accumulator.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    size = len(tensor) // world
    others = [r for r in range(world) if r != rank]
    mine = tensor[rank * size : (rank + 1) * size]
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    going = [dist.isend(tensor[r * size : (r + 1) * size].contiguous(), r) for r in others]
    for r in others:
        dist.recv(inbox, r)
        mine += inbox
    for work in going:
        work.wait()
    return mine.clone()
