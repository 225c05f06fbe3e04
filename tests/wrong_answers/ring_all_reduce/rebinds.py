"""Diagnosis: 04.another-tensor

The last line gives a new tensor the name of the argument; the caller's tensor is the old one.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    chunks = [part.clone() for part in tensor.reshape(-1).tensor_split(world)]
    for step in range(2 * (world - 1)):
        out, into = (rank - step) % world, (rank - step - 1) % world
        inbox = torch.empty_like(chunks[into])
        going = dist.isend(chunks[out], right)
        dist.recv(inbox, left)
        going.wait()
        chunks[into] = chunks[into] + inbox if step < world - 1 else inbox
    tensor = torch.cat(chunks).reshape(tensor.shape)
