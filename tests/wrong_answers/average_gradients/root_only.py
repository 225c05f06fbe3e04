"""Diagnosis: 05.root-only

reduce in place of all_reduce: rank 0 has the mean, and the others step with what was left in their
buffers.
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
        dist.reduce(parameter.grad, 0)
        parameter.grad /= dist.get_world_size()
