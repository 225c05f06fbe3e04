"""Diagnosis: 02.copy-not-written-back

contiguous() gives the tensor itself or a copy; here it is taken for the tensor.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    box = tensor.contiguous()
    if rank == src:
        for other in range(world):
            if other != src:
                dist.send(box, other)
    else:
        dist.recv(box, src)
