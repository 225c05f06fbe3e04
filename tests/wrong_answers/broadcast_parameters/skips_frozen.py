"""Diagnosis: 05.skips-frozen

What is not trained need not be sent: as if it were not used.
"""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.requires_grad or not isinstance(tensor, nn.Parameter):
            dist.broadcast(tensor.detach(), src)
