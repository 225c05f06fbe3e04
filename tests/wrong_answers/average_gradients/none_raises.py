"""Diagnosis: 05.none-raises

Every parameter of a first small model has a gradient, so nobody asks.
"""

import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(dist.get_world_size())
