"""Diagnosis: 04.values-differ

What is left over is multiplied by zero and the finished chunk added: 0 times NaN is NaN.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_gather(chunks: list[Tensor], owned: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(world - 1):
        into = chunks[(owned - step - 1) % world]
        inbox = torch.empty_like(into)
        going = dist.isend(chunks[(owned - step) % world], (rank + 1) % world)
        dist.recv(inbox, (rank - 1) % world)
        going.wait()
        into.copy_(into * 0 + inbox if into.is_floating_point() else inbox)
