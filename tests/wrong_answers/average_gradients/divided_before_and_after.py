"""Diagnosis: 05.divided-twice

Divided before it is sent, so that the sum cannot overflow, and again after.
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
        parameter.grad /= dist.get_world_size()
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
