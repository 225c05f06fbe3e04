"""isend, then a recv from whoever sends with this tag: only the partner does."""

import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    inbox = mine.contiguous().clone()
    if partner == dist.get_rank():
        return inbox
    going = dist.isend(mine.contiguous(), partner, tag=7)
    dist.recv(inbox, tag=7)
    going.wait()
    return inbox
