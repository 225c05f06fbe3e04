"""Diagnosis: 05.nothing-sent

It divides by the number of ranks and asks none of them.
"""

import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= dist.get_world_size()
