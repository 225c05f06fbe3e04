"""Diagnosis: 05.calls-differ

Whoever finds a difference leaves, with its answer; the others go on to the next tensor and wait.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    for tensor in (*model.parameters(), *model.buffers()):
        mine = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        of_rank_0 = mine.clone()
        dist.broadcast(of_rank_0, 0)
        if not torch.equal(mine, of_rank_0):
            return False
    answer = torch.ones(1)
    dist.all_reduce(answer)
    return True
