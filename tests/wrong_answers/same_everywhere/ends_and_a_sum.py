"""Diagnosis: 05.cancels

The first bytes, the last ones and a sum of all: two elements in the middle can be swapped.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    marks = []
    for tensor in [*model.parameters(), *model.buffers()]:
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).to(torch.int64)
        if len(data):
            marks.append(torch.cat([data[:8], data[-8:], data.sum().reshape(1)]))
    if not marks:
        return True
    low = torch.cat(marks)
    high = low.clone()
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    return torch.equal(low, high)
