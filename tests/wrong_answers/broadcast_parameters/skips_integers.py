"""Diagnosis: 05.skips-integers

A guard from the days when a counter made the reduction fail.
"""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            dist.broadcast(tensor.detach(), src)
