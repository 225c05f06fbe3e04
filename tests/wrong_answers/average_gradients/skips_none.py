"""Diagnosis: 05.skips-none

The usual guard. As long as every rank has the same gradients it is right; where one has none, the
next call of the others meets a different parameter.
"""

import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
