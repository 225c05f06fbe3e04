"""Diagnosis: 05.changes-dtype

Reduced in float32, which is wise for bfloat16, and left there through .data, which asks no
questions.
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
        parameter.grad.data = parameter.grad.data.float()
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(dist.get_world_size())
