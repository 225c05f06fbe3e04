"""Diagnosis: 02.talks-to-itself

The loop runs over all ranks, and dst is one of them.
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
    result = None
    for other in range(world):
        dist.recv(inbox, other)
        result = inbox.clone() if result is None else combine(result, inbox)
    tensor.copy_(result)
