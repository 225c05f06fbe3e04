"""Diagnosis: 02.one-lost

The first message fills the inbox, the second one overwrites it before it has been added.
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
    inbox = torch.empty_like(outbox)
    others = [r for r in range(world) if r != dst]
    for number, other in enumerate(others):
        dist.recv(inbox, other)
        if number > 0:
            tensor.copy_(combine(tensor, inbox))
