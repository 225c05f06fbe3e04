"""Diagnosis: 04.alone

A loop that asks at its end whether it is over makes one step too many in a ring of one.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_reduce_scatter(chunks: list[Tensor]) -> int:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    now = rank
    while True:
        before = (now - 1) % world
        inbox = torch.empty_like(chunks[before])
        going = dist.isend(chunks[now], right)
        dist.recv(inbox, left)
        chunks[before] += inbox
        going.wait()
        now = before
        if now == (rank + 1) % world:
            return now
