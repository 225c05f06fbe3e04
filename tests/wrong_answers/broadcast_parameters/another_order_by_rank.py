"""Diagnosis: 05.calls-differ

Each rank begins at another tensor, to spread the load; calls meet in the order in which they are
made, whatever they are about.
"""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    named = [*model.named_parameters(), *model.named_buffers()]
    shift = dist.get_rank() if len(named) > 1 else 0
    for _, tensor in named[shift:] + named[:shift]:
        dist.broadcast(tensor.detach(), src)
