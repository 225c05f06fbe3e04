"""For each block in turn a chain that ends at its owner."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    size = len(tensor) // world
    result = None
    for owner in range(world):
        mine = tensor[owner * size : (owner + 1) * size].contiguous().clone()
        place = (rank - owner - 1) % world
        if place > 0:
            inbox = torch.empty_like(mine)
            dist.recv(inbox, (rank - 1) % world)
            mine += inbox
        if place < world - 1:
            dist.send(mine, (rank + 1) % world)
        else:
            result = mine
    return result
