"""Diagnosis: 05.averages-weights

One of two names is wrong: the parameter is added up, and its gradient divided.
"""

import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.data)
            parameter.grad /= dist.get_world_size()
