"""Diagnosis: 01.by-parity

Even ranks send first, odd ones receive first: the rule for a ring, where neighbours differ in
parity. Partners need not: between ranks 0 and 2 both send.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine.clone()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    if dist.get_rank() % 2 == 0:
        dist.send(mine.contiguous(), partner)
        dist.recv(inbox, partner)
    else:
        dist.recv(inbox, partner)
        dist.send(mine.contiguous(), partner)
    return inbox
