"""Of two ranks one is the lower: it sends first, the other one receives first."""

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
    else:
        dist.recv(inbox, partner)
        dist.send(mine.contiguous(), partner)
    return inbox
