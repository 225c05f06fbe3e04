"""Diagnosis: 02.talks-to-itself

The loop runs over all ranks, and dst is one of them.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return None
    everybody = [
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(world)
    ]
    for other in range(world):
        dist.recv(everybody[other], other)
    return everybody
