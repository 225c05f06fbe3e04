"""Diagnosis: 02.other-op

Two branches that differ in one word.
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
            if op == "min":
                tensor.copy_(torch.maximum(tensor, inbox))
            elif op == "max":
                tensor.copy_(torch.minimum(tensor, inbox))
            else:
                tensor.copy_(tensor + inbox if op == "sum" else tensor * inbox)
