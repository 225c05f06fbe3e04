"""Diagnosis: 05.not-everybody

broadcast sounds like something that one does.
"""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    if dist.get_rank() == src:
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.detach(), src)
