"""Diagnosis: 02.copy-not-written-back

The adding is done in contiguous(), which for most tensors is the tensor itself.
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
    for other in range(world):
        if other != dst:
            dist.recv(inbox, other)
            outbox.copy_(combine(outbox, inbox))
