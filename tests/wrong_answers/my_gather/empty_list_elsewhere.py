"""Diagnosis: 02.list-everywhere

An empty list for "nothing"; who tests `is None` finds something.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    everybody: list[Tensor] = []
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
    else:
        for other in range(world):
            box = tensor.clone(memory_format=torch.contiguous_format)
            if other != dst:
                dist.recv(box, other)
            everybody.append(box)
    return everybody
