"""Diagnosis: 05.values-differ

Autograd has to be off to write in place; and then everything is switched on, what was frozen too.
"""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    model.requires_grad_(False)
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor, src)
    model.requires_grad_(True)
