"""Diagnosis: 02.root-fixed

Rank 0 adds up, whoever asked.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce(tensor: Tensor, dst: int, op: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    combine = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]
    outbox = tensor.contiguous()
    if rank != 0:
        dist.send(outbox, 0)
        return
    inbox = torch.empty_like(outbox)
    for other in range(1, world):
        dist.recv(inbox, other)
        tensor.copy_(combine(tensor, inbox))
