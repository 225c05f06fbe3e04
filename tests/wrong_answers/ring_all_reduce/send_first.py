"""Diagnosis: 04.send-first

A blocking send on every rank: each one waits for a recv that comes after its neighbour's send.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(world))
    for step in range(world - 1):
        out, into = (rank - step) % world, (rank - step - 1) % world
        inbox = torch.empty_like(chunks[into])
        dist.send(chunks[out], right)
        dist.recv(inbox, left)
        chunks[into] += inbox
    for step in range(world - 1):
        out, into = (rank + 1 - step) % world, (rank - step) % world
        dist.send(chunks[out], right)
        dist.recv(chunks[into], left)
    tensor.copy_(flat.reshape(tensor.shape))
