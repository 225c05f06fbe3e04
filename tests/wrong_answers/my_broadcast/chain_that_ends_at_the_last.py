"""Diagnosis: 02.chain-from-0

The chain starts at src and stops at the last rank, as if there were nobody before src.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    box = tensor.contiguous().clone()
    if rank != src:
        dist.recv(box, (rank - 1) % world)
    if rank < world - 1:
        dist.send(box, rank + 1)
    tensor.copy_(box)
