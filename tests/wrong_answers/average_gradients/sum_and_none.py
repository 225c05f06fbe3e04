"""Diagnosis: 05.sum

The shortest loop there is: it adds, and takes for granted that every gradient exists.
"""

import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
