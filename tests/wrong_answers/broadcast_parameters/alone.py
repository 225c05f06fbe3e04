"""Diagnosis: 05.alone

Always by way of the neighbour; a rank that is alone would have to send to itself.
"""

import torch
import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    for tensor in (*model.parameters(), *model.buffers()):
        letter = tensor.detach().clone(memory_format=torch.contiguous_format)
        if rank != src or n == 1:
            dist.recv(letter, (rank - 1) % n)
        if (rank + 1) % n != src:
            dist.send(letter, (rank + 1) % n)
        tensor.detach().copy_(letter)
