"""Diagnosis: 05.parameters-only

What is trained is sent; running means and counters stay as each rank made them.
"""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src)
