"""Rank 0 receives last, everyone else first... one different rank is enough."""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    inbox = mine.clone(memory_format=torch.contiguous_format)
    if world == 1:
        return inbox
    outbox = inbox.clone()
    if rank == 0:
        dist.send(outbox, 1)
        dist.recv(inbox, world - 1)
    else:
        dist.recv(inbox, rank - 1)
        dist.send(outbox, (rank + 1) % world)
    return inbox
