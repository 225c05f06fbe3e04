"""The root sends to one rank after the other."""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    tensors = [p.data for p in model.parameters()] + list(model.buffers())
    for tensor in tensors:
        if rank == src:
            for dst in range(n):
                if dst != src:
                    dist.send(tensor, dst)
        else:
            dist.recv(tensor, src)
