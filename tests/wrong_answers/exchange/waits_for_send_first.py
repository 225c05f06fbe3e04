"""Diagnosis: 01.both-send-first

An isend whose wait comes before the recv is a send with more letters.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    if partner == dist.get_rank():
        return mine.clone()
    dist.isend(mine.contiguous(), partner).wait()
    dist.recv(inbox, partner)
    return inbox
