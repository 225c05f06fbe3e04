"""Diagnosis: 05.calls-differ

Rank 0 broadcasts while the others gather: two halves of two right answers.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    n = dist.get_world_size()
    mine = torch.cat([torch.zeros(1), *(p.detach().float().flatten() for p in model.parameters())])
    if dist.get_rank() == 0:
        dist.broadcast(mine, 0)
        return True
    every = [torch.empty_like(mine) for _ in range(n)]
    dist.all_gather(every, mine)
    return all(torch.equal(mine, other) for other in every)
