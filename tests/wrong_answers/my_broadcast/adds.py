"""Diagnosis: 02.adds

After a morning of reductions, += is what the fingers type.
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
        inbox = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        dist.recv(inbox, src)
        if inbox.dtype == torch.bool:
            tensor.copy_(inbox)
        else:
            tensor += inbox
