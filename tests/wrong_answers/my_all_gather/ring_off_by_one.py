"""Diagnosis: 02.not-in-rank-order

The place of what arrives, one too far round: right in number, wrong in place.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_all_gather(tensor: Tensor) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    pile = torch.empty((world, *tensor.shape), dtype=tensor.dtype)
    pile[(rank + 1) % world] = tensor
    for step in range(world - 1):
        going = dist.isend(pile[(rank + 1 - step) % world].clone(), (rank + 1) % world)
        dist.recv(pile[(rank - step) % world], (rank - 1) % world)
        going.wait()
    return list(pile.unbind(0))
