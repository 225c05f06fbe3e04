"""Diagnosis: 01.two-ranks-only

Tried with two ranks, where the other one is 1 - rank.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank = dist.get_rank()
    if dist.get_world_size() == 1:
        return mine.clone()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    if rank == 0:
        dist.send(mine.contiguous(), 1)
        dist.recv(inbox, 1)
    else:
        dist.recv(inbox, 0)
        dist.send(mine.contiguous(), 0)
    return inbox
