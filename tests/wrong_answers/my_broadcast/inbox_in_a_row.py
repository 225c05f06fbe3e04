"""Diagnosis: 02.shape

As many elements, in one dimension: copying them back fits vectors only.
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
        inbox = torch.empty(tensor.numel(), dtype=tensor.dtype)
        dist.recv(inbox, src)
        tensor[:] = inbox
