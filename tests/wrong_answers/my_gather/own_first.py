"""Diagnosis: 02.not-in-rank-order

The own one first, then the others in their order.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return None
    everybody = [tensor.clone()]
    for other in range(world):
        if other != rank:
            everybody.append(torch.empty_like(tensor, memory_format=torch.contiguous_format))
            dist.recv(everybody[-1], other)
    return everybody
