"""Diagnosis: 01.alone

Modulo one, every neighbour is oneself, and a message to oneself is refused.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    going = dist.isend(mine.contiguous(), (rank + 1) % world)
    dist.recv(inbox, (rank - 1) % world)
    going.wait()
    return inbox
