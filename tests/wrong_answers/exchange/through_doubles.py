"""Diagnosis: 01.values-differ

Doubles as the one dtype of all messages: "every number fits into a double". Integers above 2^53 do
not, and come back as their neighbours.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine.clone()
    outbox = mine.to(torch.float64).contiguous()
    inbox = torch.empty_like(outbox)
    going = dist.isend(outbox, partner)
    dist.recv(inbox, partner)
    going.wait()
    return inbox.to(mine.dtype)
