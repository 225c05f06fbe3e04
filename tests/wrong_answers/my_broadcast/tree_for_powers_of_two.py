"""Diagnosis: 02.powers-of-two

The binomial tree of the textbooks, which number their ranks 0 to 2^k − 1.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    place, distance = (rank - src) % world, 1
    box = tensor.contiguous().clone()
    while distance < world:
        if place < distance:
            dist.send(box, (rank + distance) % world)
        elif place < 2 * distance:
            dist.recv(box, (rank - distance) % world)
        distance *= 2
    tensor.copy_(box)
