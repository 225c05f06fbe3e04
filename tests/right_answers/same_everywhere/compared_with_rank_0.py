"""Everybody compares with a copy of rank 0's, and all hear the smallest answer."""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    tensors = [t.detach() for t in (*model.parameters(), *model.buffers())]
    raw = [t.contiguous().reshape(-1).view(torch.uint8) for t in tensors]
    mine = torch.cat([torch.zeros(1, dtype=torch.uint8), *raw])
    of_rank_0 = mine.clone()
    dist.broadcast(of_rank_0, 0)
    answer = torch.tensor(int(torch.equal(mine, of_rank_0)))
    dist.all_reduce(answer, dist.ReduceOp.MIN)
    return bool(answer)
