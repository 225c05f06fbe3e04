"""Diagnosis: 02.powers-of-two

The number of rounds rounded down: with three ranks, one round, and the third hears nothing.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % world
    box = tensor.contiguous().clone()
    for k in range(world.bit_length() - 1):
        partner = place ^ (1 << k)
        if place >> (k + 1) == 0 and partner < world:
            if place < partner:
                dist.send(box, (partner + src) % world)
            else:
                dist.recv(box, (partner + src) % world)
    tensor.copy_(box)
