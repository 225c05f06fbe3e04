"""Diagnosis: 04.alone

A loop that asks at its end whether it is over makes one step too many in a ring of one.
"""

import torch.distributed as dist
from torch import Tensor


def ring_all_gather(chunks: list[Tensor], owned: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    now = owned
    while True:
        before = (now - 1) % world
        going = dist.isend(chunks[now], right)
        dist.recv(chunks[before], left)
        going.wait()
        now = before
        if now == (owned + 1) % world:
            break
