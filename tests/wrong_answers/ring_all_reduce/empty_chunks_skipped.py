"""Diagnosis: 04.short-tensor

An empty chunk is left out of the list, and from there on the ranks count different numbers of
chunks.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    flat = tensor.reshape(-1).clone()
    chunks = [chunk for chunk in flat.tensor_split(world) if len(chunk)]
    for step in range(world - 1):
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
