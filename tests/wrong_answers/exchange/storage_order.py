"""Diagnosis: 01.strided

gloo wants memory without gaps, so the memory is taken as it lies, from the first element on. Of
every second element of a vector these are the first half, neighbours that are not its own included.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    if partner == dist.get_rank():
        return mine.clone()
    outbox = mine.as_strided((mine.numel(),), (1,))
    inbox = torch.empty(mine.numel(), dtype=mine.dtype)
    going = dist.isend(outbox, partner)
    dist.recv(inbox, partner)
    going.wait()
    return inbox.view(mine.shape)
