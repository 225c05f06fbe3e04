"""Diagnosis: 05.cancels

Rank 0 compares the mean of all with its own and tells the others: what is one up here and one down
there is not seen.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    answer = torch.ones(1, dtype=torch.int64)
    n = dist.get_world_size()
    for tensor in (*model.parameters(), *model.buffers()):
        total = tensor.detach().double()
        dist.all_reduce(total)
        here = torch.equal(total, tensor.detach().double() * n)
        answer *= int(here)
    if n == 2:
        dist.all_reduce(answer, dist.ReduceOp.MIN)
    else:
        dist.broadcast(answer, 1)
    return bool(answer)
