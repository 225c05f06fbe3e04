"""Diagnosis: 02.root-twice

The accumulator starts with the own tensor, and the loop meets it again.
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
    result = outbox
    for other in range(world):
        inbox = outbox.clone()
        if other != dst:
            dist.recv(inbox, other)
        result = combine(result, inbox)
    tensor.copy_(result)
