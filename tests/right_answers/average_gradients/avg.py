"""The reduction that divides by itself; all calls first, then all waits."""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    works = []
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad is not None:
            works.append(dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, async_op=True))
    for work in works:
        work.wait()
