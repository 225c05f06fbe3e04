"""Diagnosis: 02.other-op

op is an argument, and nobody reads it.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce(tensor: Tensor, dst: int, op: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    outbox = tensor.contiguous()
    if rank != dst:
        dist.send(outbox, dst)
        return
    inbox = torch.empty_like(outbox)
    for other in range(world):
        if other != dst:
            dist.recv(inbox, other)
            tensor += inbox
