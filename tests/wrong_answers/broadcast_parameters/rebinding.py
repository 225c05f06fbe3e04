"""Diagnosis: 05.rebinding

The message arrives in a copy, and then a local name is given to it.
"""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        inbox = tensor.detach().clone()
        dist.broadcast(inbox, src)
        tensor = inbox  # noqa: PLW2901
