"""Diagnosis: 01.no-such-rank

The modulo is there on one side only. On the other one Python's habit helps: a list has an element
−1, the last one. A world has no rank −1.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return mine.clone()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    going = dist.isend(mine.contiguous(), (rank + 1) % world)
    dist.recv(inbox, rank - 1)
    going.wait()
    return inbox
