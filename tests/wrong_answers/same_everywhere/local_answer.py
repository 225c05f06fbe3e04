"""Diagnosis: 05.local

Every rank compares with rank 0 and keeps the answer to itself; rank 0 is always content.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    same = True
    for tensor in (*model.parameters(), *model.buffers()):
        mine = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        of_rank_0 = mine.clone()
        dist.broadcast(of_rank_0, 0)
        same = same and torch.equal(mine, of_rank_0)
    return same
