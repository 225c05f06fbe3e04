"""Diagnosis: 01.values-differ

`torch.empty(shape)` is an inbox of float32, so what leaves is made float32 as well and the two fit.
Nobody turns it back: whoever sends doubles or integers gets floats.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine.clone()
    outbox = mine.float().contiguous()
    inbox = torch.empty(mine.shape)
    going = dist.isend(outbox, partner)
    dist.recv(inbox, partner)
    going.wait()
    return inbox
