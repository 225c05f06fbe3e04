"""Diagnosis: 02.shape

A message has no shape, so neither have the inboxes.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return None
    everybody = [torch.empty(tensor.numel(), dtype=tensor.dtype) for _ in range(world)]
    everybody[rank] = tensor.clone()
    for other in range(world):
        if other != rank:
            dist.recv(everybody[other], other)
    return everybody
