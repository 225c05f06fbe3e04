"""Diagnosis: 02.others-changed

Adds into the caller's tensor and takes it off again: what was rounded, or infinite, does not come
back.
"""

import torch
import torch.distributed as dist
from torch import nn


def my_reduce(tensor, dst, op):
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - dst - 1) % n
    inbox = torch.empty(tensor.shape, dtype=tensor.dtype)
    before = None
    if place > 0:
        dist.recv(inbox, (rank - 1) % n)
        before = tensor.clone() if op != "sum" else None
        _into(tensor, inbox, op)
    if rank != dst:
        dist.send(tensor.contiguous(), (rank + 1) % n)
        if before is not None:
            tensor.copy_(before)
        elif place > 0:
            tensor -= inbox


def _into(a, b, op):
    if op == "sum":
        a += b
    elif op == "prod":
        a *= b
    else:
        a.copy_((torch.maximum if op == "max" else torch.minimum)(a, b))
