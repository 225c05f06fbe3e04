"""Whoever has it tells one more in every round: any number of ranks, any src."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % world
    box = tensor.contiguous().clone()
    distance = 1
    while distance < world:
        if place < distance and place + distance < world:
            dist.send(box, (rank + distance) % world)
        elif distance <= place < 2 * distance:
            dist.recv(box, (rank - distance) % world)
        distance *= 2
    tensor.copy_(box)
