"""Diagnosis: 04.in-flight

One buffer carries each chunk on, and takes the next one before the neighbour has the last.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_gather(chunks: list[Tensor], owned: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    carried = chunks[owned].clone()
    under_way = []
    for step in range(1, world):
        into = chunks[(owned - step) % world]
        under_way.append(dist.isend(carried, right))
        dist.recv(into, left)
        carried.resize_(into.shape).copy_(into)
    for work in under_way:
        work.wait()
