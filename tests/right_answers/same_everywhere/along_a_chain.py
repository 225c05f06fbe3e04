"""Rank by rank: compare with the left neighbour, pass the verdict on, and let the last one tell."""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    rank, n = dist.get_rank(), dist.get_world_size()
    raw = [
        t.detach().contiguous().reshape(-1).view(torch.uint8)
        for t in (*model.parameters(), *model.buffers())
    ]
    mine = torch.cat([torch.ones(1, dtype=torch.uint8), *raw])
    if rank > 0:
        theirs = torch.empty_like(mine)
        dist.recv(theirs, rank - 1)
        if not torch.equal(theirs, mine):
            mine[0] = 0
    if rank < n - 1:
        dist.send(mine, rank + 1)
    dist.broadcast(mine, n - 1)
    return bool(mine[0])
