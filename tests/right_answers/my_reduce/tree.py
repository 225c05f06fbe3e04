"""Pairs, then pairs of pairs: the highest bit first."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce(tensor: Tensor, dst: int, op: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    combine = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]
    place = (rank - dst) % world
    total = tensor.contiguous().clone()
    distance = 1
    while distance < world:
        if place & distance:
            dist.send(total, (place - distance + dst) % world)
            return
        if place + distance < world:
            inbox = torch.empty_like(total)
            dist.recv(inbox, (place + distance + dst) % world)
            total = combine(total, inbox)
        distance *= 2
    tensor.copy_(total)
