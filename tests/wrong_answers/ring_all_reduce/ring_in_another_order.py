"""Diagnosis: 04.not-a-neighbour

Even ranks first, then odd ones: the right ring for two machines that deal out ranks in turn. Here
the ring is asked for in the order of ranks.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    world = dist.get_world_size()
    order = sorted(range(world), key=lambda rank: (rank % 2, rank))
    place = order.index(dist.get_rank())
    right, left = order[(place + 1) % world], order[(place - 1) % world]
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(world))
    for step in range(2 * (world - 1)):
        out, into = (place - step) % world, (place - step - 1) % world
        inbox = torch.empty_like(chunks[into])
        going = dist.isend(chunks[out], right)
        dist.recv(inbox, left)
        going.wait()
        chunks[into].copy_(chunks[into] + inbox if step < world - 1 else inbox)
    tensor.copy_(flat.reshape(tensor.shape))
