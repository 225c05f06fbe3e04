"""Even ranks send first, odd ones receive first: somebody in every row can move."""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return mine.clone()
    right, left = (rank + 1) % world, (rank - 1) % world
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    if rank % 2 == 0:
        dist.send(mine.contiguous(), right)
        dist.recv(inbox, left)
    else:
        dist.recv(inbox, left)
        dist.send(mine.contiguous(), right)
    return inbox
