"""Diagnosis: 01.shares-memory

"Nothing to send, nothing to do": the partner's empty tensor is a new one all the same.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine.clone()
    if mine.numel() == 0:
        return mine
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    going = dist.isend(mine.contiguous(), partner)
    dist.recv(inbox, partner)
    going.wait()
    return inbox
