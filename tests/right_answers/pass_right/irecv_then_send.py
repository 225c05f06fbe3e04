"""The other way about, with the inbox posted first."""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    inbox = torch.zeros(mine.shape, dtype=mine.dtype)
    if world == 1:
        return inbox.copy_(mine)
    coming = dist.irecv(inbox, (rank - 1) % world)
    dist.send(mine.contiguous(), (rank + 1) % world)
    coming.wait()
    return inbox
