"""Diagnosis: 02.one-buffer

A list times n is n times the same tensor.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return None
    everybody = [torch.empty_like(tensor, memory_format=torch.contiguous_format)] * world
    everybody[rank].copy_(tensor)
    for other in range(world):
        if other != rank:
            dist.recv(everybody[other], other)
    return everybody
