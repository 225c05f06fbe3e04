"""Diagnosis: 01.strided

Tensors that have just been made lie side by side in memory; a column of a matrix does not, and
gloo refuses to send it.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return mine.clone()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    going = dist.isend(mine, (rank + 1) % world)
    dist.recv(inbox, (rank - 1) % world)
    going.wait()
    return inbox
