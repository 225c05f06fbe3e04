"""Diagnosis: 02.strided

send gets the tensor as it is.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor, dst)
        return None
    everybody = [tensor.clone(memory_format=torch.contiguous_format) for _ in range(world)]
    for other in range(world):
        if other != rank:
            dist.recv(everybody[other], other)
    return everybody
