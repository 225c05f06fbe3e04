"""Of whole numbers that are equal, the smallest is the largest."""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    tensors = [t.detach() for t in (*model.parameters(), *model.buffers())]
    if not tensors:
        return True
    low = torch.cat([t.contiguous().reshape(-1).view(torch.uint8) for t in tensors])
    high = low.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return torch.equal(low, high)
