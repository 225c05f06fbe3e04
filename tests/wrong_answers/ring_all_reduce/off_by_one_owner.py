"""Diagnosis: 04.unfinished-sums

After the adding half rank r owns chunk r + 1, not chunk r. Who starts the second half with chunk
r sends raw data round.
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
        going = dist.isend(chunks[out], right)
        dist.recv(inbox, left)
        chunks[into] += inbox
        going.wait()
    for step in range(world - 1):
        out, into = (rank - step) % world, (rank - step - 1) % world
        going = dist.isend(chunks[out], right)
        dist.recv(chunks[into], left)
        going.wait()
    tensor.copy_(flat.reshape(tensor.shape))
