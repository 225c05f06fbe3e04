"""Diagnosis: 02.strided

The tensor is handed over as it is: fine until somebody passes a column of a matrix.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == src:
        for other in range(world):
            if other != src:
                dist.send(tensor, other)
    else:
        dist.recv(tensor, src)
