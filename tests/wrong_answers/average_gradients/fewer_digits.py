"""Diagnosis: 05.fewer-digits

One float32 bucket for all: half the bytes, and float64 gradients lose the digits that they were
float64 for.
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
        wire = parameter.grad.float()
        dist.all_reduce(wire)
        parameter.grad.copy_(wire / dist.get_world_size())
