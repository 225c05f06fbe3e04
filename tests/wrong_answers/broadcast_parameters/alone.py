"""Diagnosis: 05.alone

Always by way of the neighbour; a rank that is alone would have to send to itself.
"""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    for tensor in (*model.parameters(), *model.buffers()):
        if rank != src or n == 1:
            dist.recv(tensor.detach(), (rank - 1) % n)
        if (rank + 1) % n != src:
            dist.send(tensor.detach(), (rank + 1) % n)
