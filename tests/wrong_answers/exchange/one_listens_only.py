"""Diagnosis: 01.deadlock

Half of the answer for one of the two: it takes, forgets to give, and leaves. The other one waits
for somebody who has gone home.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine.clone()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    if dist.get_rank() < partner:
        dist.send(mine.contiguous(), partner)
    dist.recv(inbox, partner)
    return inbox
