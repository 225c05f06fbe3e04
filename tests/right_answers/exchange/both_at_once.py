"""Both messages under way at the same time, then both waits."""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    outbox = mine.clone(memory_format=torch.contiguous_format)
    if partner == dist.get_rank():
        return outbox
    inbox = torch.empty_like(outbox)
    works = [dist.isend(outbox, partner), dist.irecv(inbox, partner)]
    for work in works:
        work.wait()
    return inbox
