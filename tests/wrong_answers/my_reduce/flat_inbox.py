"""Diagnosis: 02.shape

A message has no shape, so neither has the inbox.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce(tensor: Tensor, dst: int, op: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    combine = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]
    outbox = tensor.contiguous()
    if rank != dst:
        dist.send(outbox, dst)
        return
    inbox = torch.empty(tensor.numel(), dtype=tensor.dtype)
    for other in range(world):
        if other != dst:
            dist.recv(inbox, other)
            tensor[:] = combine(tensor, inbox)
