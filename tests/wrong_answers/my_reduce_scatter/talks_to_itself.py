"""Diagnosis: 02.talks-to-itself

A block for every rank, its own one included.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    size = len(tensor) // world
    total = torch.zeros((size, *tensor.shape[1:]), dtype=tensor.dtype)
    inbox = torch.empty_like(total)
    going = [dist.isend(tensor[r * size : (r + 1) * size].contiguous(), r) for r in range(world)]
    for r in range(world):
        dist.recv(inbox, r)
        total += inbox
    for work in going:
        work.wait()
    return total
