"""Diagnosis: 04.unfinished-sums

The adding half stops one step early, so no chunk has met everybody when the second half begins.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(world))
    for step in range(world - 2):
        out, into = (rank - step) % world, (rank - step - 1) % world
        inbox = torch.empty_like(chunks[into])
        going = dist.isend(chunks[out], right)
        dist.recv(inbox, left)
        chunks[into] += inbox
        going.wait()
    for step in range(world - 1):
        out, into = (rank + 1 - step) % world, (rank - step) % world
        going = dist.isend(chunks[out], right)
        dist.recv(chunks[into], left)
        going.wait()
    tensor.copy_(flat.reshape(tensor.shape))
