"""Diagnosis: 05.none-stays

The call is made with zeros, so nobody waits; and the mean is thrown away where there was nothing
to put it into.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(grad.detach())
        grad.detach().div_(dist.get_world_size())
