"""Diagnosis: 02.dtype

torch.empty makes float32 unless it is told otherwise.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == src:
        for other in range(world):
            if other != src:
                dist.send(tensor.contiguous(), other)
    else:
        inbox = torch.empty(tensor.shape)
        dist.recv(inbox, src)
        tensor.copy_(inbox)
