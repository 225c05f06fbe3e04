"""Diagnosis: 01.two-ranks-only

The same, in one line: rank 2 has a neighbour of number -1.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    if dist.get_world_size() == 1:
        return mine.clone()
    other = 1 - dist.get_rank()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    works = [dist.isend(mine.contiguous(), other), dist.irecv(inbox, other)]
    for work in works:
        work.wait()
    return inbox
