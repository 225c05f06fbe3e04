"""Diagnosis: 02.dtype

torch.empty makes float32 unless it is told otherwise.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return None
    everybody = [torch.empty(tensor.shape) for _ in range(world)]
    everybody[rank] = tensor.clone()
    for other in range(world):
        if other != rank:
            dist.recv(everybody[other], other)
    return everybody
