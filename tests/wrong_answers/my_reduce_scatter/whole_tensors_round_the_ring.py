"""Diagnosis: 02.too-many-bytes

A ring that was written for the whole tensor; the block is cut out at the end.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    total = tensor.contiguous().clone()
    passing = total.clone()
    for _ in range(world - 1):
        inbox = torch.empty_like(passing)
        going = dist.isend(passing, (rank + 1) % world)
        dist.recv(inbox, (rank - 1) % world)
        going.wait()
        total += inbox
        passing = inbox
    size = len(tensor) // world
    return total[rank * size : (rank + 1) * size].clone()
