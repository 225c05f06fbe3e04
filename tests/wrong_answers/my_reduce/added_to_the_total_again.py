"""Diagnosis: 02.root-twice

The total of everybody is added to the tensor, which is in that total already.
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
    result = outbox.clone()
    for other in range(world):
        if other != dst:
            dist.recv(inbox, other)
            result = combine(result, inbox)
    tensor.copy_(combine(tensor, result) if world > 1 else tensor)
