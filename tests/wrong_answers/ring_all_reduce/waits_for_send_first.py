"""Diagnosis: 04.send-first

An isend whose wait comes before the recv is a send with more letters.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(world))
    for step in range(2 * (world - 1)):
        out, into = (rank - step) % world, (rank - step - 1) % world
        inbox = torch.empty_like(chunks[into])
        dist.isend(chunks[out], right).wait()
        dist.recv(inbox, left)
        chunks[into].copy_(chunks[into] + inbox if step < world - 1 else inbox)
    tensor.copy_(flat.reshape(tensor.shape))
