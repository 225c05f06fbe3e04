"""Diagnosis: 01.own-partner

"Then a copy" was read as "then the same".
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    going = dist.isend(mine.contiguous(), partner)
    dist.recv(inbox, partner)
    going.wait()
    return inbox
