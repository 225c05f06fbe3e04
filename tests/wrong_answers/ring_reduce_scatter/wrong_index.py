"""Diagnosis: 04.wrong-index

The sums are right, and the rank returns the index of a chunk that it has sent away.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_reduce_scatter(chunks: list[Tensor]) -> int:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    for step in range(world - 1):
        out, into = (rank - step) % world, (rank - step - 1) % world
        inbox = torch.empty_like(chunks[into])
        going = dist.isend(chunks[out], right)
        dist.recv(inbox, left)
        chunks[into] += inbox
        going.wait()
    return rank
