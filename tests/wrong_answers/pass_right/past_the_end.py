"""Diagnosis: 01.no-such-rank

Without any modulo: the last rank has a right neighbour that nobody is.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    if dist.get_world_size() == 1:
        return mine.clone()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    going = dist.isend(mine.contiguous(), dist.get_rank() + 1)
    dist.recv(inbox, (dist.get_rank() - 1) % dist.get_world_size())
    going.wait()
    return inbox
