"""Diagnosis: 05.some-layers

Biases are small, so they were left out; and then they differ from rank to rank.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if not parameter.requires_grad or parameter.dim() == 1:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
