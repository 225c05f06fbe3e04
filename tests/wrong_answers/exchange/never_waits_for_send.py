"""Diagnosis: 01.never-waited

The answer is there, so why wait for the other message? Because its buffer may be gone before it
has left.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine.clone()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    dist.isend(mine.contiguous(), partner)
    dist.recv(inbox, partner)
    return inbox
