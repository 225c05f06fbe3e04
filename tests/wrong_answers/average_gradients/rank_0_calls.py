"""Diagnosis: 05.not-everybody

Rank 0 is taken for the one that averages; a collective that it calls alone waits for the others.
"""

import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    if dist.get_rank() == 0:
        for parameter in model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
