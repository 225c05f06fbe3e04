"""Diagnosis: 05.no-parameters

The first parameter is asked for its device; a model of buffers has none.
"""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    device = next(model.parameters()).device
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach().to(device), src)
