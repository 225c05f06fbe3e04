"""Zeros for whoever has no gradient, frozen parameters included; divided before it is sent."""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    n = dist.get_world_size()
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad.div_(n)
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
