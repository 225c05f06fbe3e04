"""Diagnosis: 05.averages-a-copy

contiguous() is the tensor itself where it is contiguous already, and a copy where it is not: the
gradients of channels_last layers, for one.
https://docs.pytorch.org/docs/stable/generated/torch.Tensor.contiguous.html
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for p in model.parameters():
        has = torch.tensor(float(p.grad is not None))
        dist.all_reduce(has)
        if has == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        grad = p.grad.contiguous()
        dist.all_reduce(grad)
        grad /= dist.get_world_size()
