"""Diagnosis: 02.values-differ

src tells its neighbour, and nobody passes it on.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    box = tensor.contiguous().clone()
    if rank == src and world > 1:
        dist.send(box, (rank + 1) % world)
    elif rank == (src + 1) % world and world > 1:
        dist.recv(box, src)
    tensor.copy_(box)
