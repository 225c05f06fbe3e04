"""Diagnosis: 05.calls-differ

Odd ranks begin at the other end, to spread the load. Calls meet in the order in which they are
made, whatever they are about.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    backwards = dist.get_rank() % 2 == 1
    for parameter in list(model.parameters())[:: -1 if backwards else 1]:
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
