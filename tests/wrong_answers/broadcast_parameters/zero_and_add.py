"""Diagnosis: 05.zeros-added

Everybody but the root puts zeros, and all add up: x + 0 is x, unless x is −0.
"""

import torch
import torch.distributed as dist
from torch import nn


@torch.no_grad()
def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        if dist.get_rank() != src:
            tensor.zero_()
        dist.all_reduce(tensor)
