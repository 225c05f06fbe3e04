"""Diagnosis: 02.others-changed

The result is sent back to everybody: that is another collective.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce(tensor: Tensor, dst: int, op: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    combine = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]

    outbox = tensor.contiguous().clone()
    if rank != dst:
        dist.send(outbox, dst)
        dist.recv(outbox, dst)
    else:
        inbox = torch.empty_like(outbox)
        others = [r for r in range(world) if r != dst]
        for other in others:
            dist.recv(inbox, other)
            outbox = combine(outbox, inbox)
        for other in others:
            dist.send(outbox, other)
    tensor.copy_(outbox)
