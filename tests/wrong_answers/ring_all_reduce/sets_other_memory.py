"""Diagnosis: 04.not-in-place

A name that ends in an underscore is in place, so set_ must be. It puts other memory in place.
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
        going = dist.isend(chunks[out], right)
        dist.recv(inbox, left)
        going.wait()
        chunks[into].copy_(chunks[into] + inbox if step < world - 1 else inbox)
    tensor.set_(flat.reshape(tensor.shape))
