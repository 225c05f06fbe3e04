"""Diagnosis: 04.not-in-place

The inbox is put into the list in place of the caller's chunk.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_gather(chunks: list[Tensor], owned: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    for step in range(world - 1):
        out, into = (owned - step) % world, (owned - step - 1) % world
        going = dist.isend(chunks[out], right)
        inbox = torch.empty_like(chunks[into])
        dist.recv(inbox, left)
        chunks[into] = inbox
        going.wait()
