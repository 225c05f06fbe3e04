"""Diagnosis: 01.never-waited

isend to get out of the deadlock, and then forget about it.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return mine.clone()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    dist.isend(mine.contiguous(), (rank + 1) % world)
    dist.recv(inbox, (rank - 1) % world)
    return inbox
