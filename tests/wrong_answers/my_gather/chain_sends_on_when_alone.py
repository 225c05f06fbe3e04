"""Diagnosis: 02.alone

The first of a chain has nobody before it and sends on; alone, the first is the last as well.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    place = (rank - dst - 1) % world
    pile = torch.empty((place + 1, *tensor.shape), dtype=tensor.dtype)
    pile[place] = tensor
    if place == 0:
        dist.send(pile, (rank + 1) % world)
        return None
    dist.recv(pile[:place], (rank - 1) % world)
    if rank != dst:
        dist.send(pile, (rank + 1) % world)
        return None
    return [pile[(r - dst - 1) % world] for r in range(world)]
