"""Diagnosis: 02.wrong-type

What torch calls all_gather_single: one tensor of n rows, and no list.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return None
    rows = torch.empty((world, *tensor.shape), dtype=tensor.dtype)
    rows[rank] = tensor
    for other in range(world):
        if other != rank:
            dist.recv(rows[other], other)
    return rows
