"""Diagnosis: 05.divides-by-holders

The mean over those who have one: reasonable, and no longer the gradient of the whole batch.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        holders = torch.tensor(float(parameter.grad is not None))
        dist.all_reduce(holders)
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= holders.clamp(min=1).item()
