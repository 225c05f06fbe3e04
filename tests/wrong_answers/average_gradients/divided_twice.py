"""Diagnosis: 05.divided-twice

AVG divides already; the line below was there before AVG was.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        parameter.grad /= dist.get_world_size()
