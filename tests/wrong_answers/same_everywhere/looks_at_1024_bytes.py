"""Diagnosis: 05.part-compared

Of a large tensor 1024 bytes are looked at, evenly spread; the other ones may differ.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    same = True
    for tensor in (*model.parameters(), *model.buffers()):
        mine = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        if len(mine) > 1024:
            places = torch.linspace(0, len(mine) - 1, 1024, dtype=torch.float64).round().long()
            mine = mine[places.to(mine.device)]
        if len(mine):
            least, most = mine.clone(), mine.clone()
            dist.all_reduce(least, op=dist.ReduceOp.MIN)
            dist.all_reduce(most, op=dist.ReduceOp.MAX)
            same = same and torch.equal(least, most)
    return same
