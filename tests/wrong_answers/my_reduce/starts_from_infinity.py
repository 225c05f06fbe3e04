"""Diagnosis: 02.dtype

The neutral elements of a textbook: no integer is infinite.
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
    neutral = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}[op]
    result = torch.full_like(outbox, neutral)
    result = combine(result, outbox)
    for other in range(world):
        if other != dst:
            dist.recv(inbox, other)
            result = combine(result, inbox)
    tensor.copy_(result)
