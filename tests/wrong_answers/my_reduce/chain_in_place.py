"""Diagnosis: 02.others-changed

A chain that adds up in the tensors themselves leaves a partial sum on each rank. This is what a
backend may do inside of its own reduce.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce(tensor: Tensor, dst: int, op: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    combine = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]

    place = (rank - dst - 1) % world
    if place > 0:
        inbox = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        dist.recv(inbox, (rank - 1) % world)
        tensor.copy_(combine(tensor, inbox))
    if rank != dst:
        dist.send(tensor.contiguous(), (rank + 1) % world)
