"""Diagnosis: 05.none-for-zero

Whether another rank had a gradient is read off the mean, which may be zero all the same.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for p in model.parameters():
        mine = torch.zeros_like(p, requires_grad=False) if p.grad is None else p.grad
        mean = mine.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        if p.grad is not None:
            p.grad.copy_(mean)
        elif mean.any():  # otherwise it is missing everywhere: leave None
            mine.copy_(mean)
            p.grad = mine
