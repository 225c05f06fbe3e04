"""Diagnosis: 02.root-fixed

dst is who receives, and the others are counted from 1.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return None
    everybody = [tensor.clone(memory_format=torch.contiguous_format) for _ in range(world)]
    for other in range(1, world):
        dist.recv(everybody[other], other)
    return everybody
