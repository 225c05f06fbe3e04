"""To the last rank and back as one pile."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_all_gather(tensor: Tensor) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    last = world - 1
    pile = torch.stack([tensor] * world).contiguous()
    if rank == last:
        for other in range(last):
            dist.recv(pile[other], other)
        for other in range(last):
            dist.send(pile, other)
    else:
        dist.send(tensor.contiguous(), last)
        dist.recv(pile, last)
    return [row.clone() for row in pile]
