"""Diagnosis: 02.list-everywhere

torch.distributed.gather wants its list on dst only; here every rank makes one and returns it.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    everybody = [
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(world)
    ]
    everybody[rank].copy_(tensor)
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
    else:
        for other in range(world):
            if other != dst:
                dist.recv(everybody[other], other)
    return everybody
