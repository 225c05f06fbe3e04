"""Diagnosis: 05.values-differ

The memory behind a tensor may be larger than the tensor: a slice of one buffer for all.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    same = True
    for tensor in (*model.parameters(), *model.buffers()):
        memory = tensor.detach().untyped_storage()
        mine = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(memory)
        size = torch.tensor([len(mine), -len(mine)], device=tensor.device)
        dist.all_reduce(size, op=dist.ReduceOp.MIN)
        if size[0] != -size[1]:
            same = False
        elif len(mine):
            least, most = mine.clone(), mine.clone()
            dist.all_reduce(least, op=dist.ReduceOp.MIN)
            dist.all_reduce(most, op=dist.ReduceOp.MAX)
            same = same and torch.equal(least, most)
    return same
