"""Diagnosis: 05.averages

Afterwards all are alike; and nobody has the model that was asked for.
"""

import torch
import torch.distributed as dist
from torch import nn


@torch.no_grad()
def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            dist.all_reduce(tensor)
            tensor /= dist.get_world_size()
        else:
            dist.broadcast(tensor, src)
