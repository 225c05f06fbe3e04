"""Diagnosis: 04.alone

A loop that asks at its end whether it is over makes one step too many in a ring of one.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(world))
    step = 0
    while True:
        out, into = (rank - step) % world, (rank - step - 1) % world
        inbox = torch.empty_like(chunks[into])
        going = dist.isend(chunks[out], right)
        dist.recv(inbox, left)
        going.wait()
        chunks[into].copy_(chunks[into] + inbox if step < world - 1 else inbox)
        step += 1
        if step >= 2 * (world - 1):
            break
    tensor.copy_(flat.reshape(tensor.shape))
