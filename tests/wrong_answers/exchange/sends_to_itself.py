"""Diagnosis: 01.own-partner

A partner is a partner. gloo refuses a message to oneself.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    going = dist.isend(mine.contiguous(), partner)
    dist.recv(inbox, partner)
    going.wait()
    return inbox
