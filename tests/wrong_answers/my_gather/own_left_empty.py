"""Diagnosis: 02.own-missing

There is a place for it, and nobody has filled it.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return None
    everybody = [torch.zeros(tensor.shape, dtype=tensor.dtype) for _ in range(world)]
    for other in range(world):
        if other != rank:
            dist.recv(everybody[other], other)
    return everybody
