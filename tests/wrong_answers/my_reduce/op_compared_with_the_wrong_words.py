"""Diagnosis: 02.other-op

torch says PRODUCT where this exercise says prod: what is not known falls through to the sum.
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
            if op == "max":
                tensor.copy_(torch.maximum(tensor, inbox))
            elif op == "min":
                tensor.copy_(torch.minimum(tensor, inbox))
            elif op == "product":
                tensor *= inbox
            else:
                tensor += inbox
