"""Diagnosis: 02.not-in-rank-order

A chain that ends at dst piles up the tensors in the order of the chain, and nobody turns the
pile.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    place = (rank - dst - 1) % world
    pile = torch.empty((place + 1, *tensor.shape), dtype=tensor.dtype)
    pile[place] = tensor
    if place > 0:
        dist.recv(pile[:place], (rank - 1) % world)
    if rank != dst:
        dist.send(pile, (rank + 1) % world)
        return None
    return [row.clone() for row in pile]
