"""Diagnosis: 02.mismatch

A tensor of zeros adds nothing, so it is not sent; the root waits for it all the same.
"""

import torch
import torch.distributed as dist
from torch import nn


def my_reduce(tensor, dst, op):
    rank, n = dist.get_rank(), dist.get_world_size()
    x = tensor.contiguous()
    if rank != dst:
        if op == "sum" and x.numel() and not x.any():
            return
        dist.send(x, dst)
        return
    f = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]
    for p in range(n):
        if p != dst:
            box = torch.empty_like(x)
            dist.recv(box, p)
            tensor.copy_(f(tensor, box))
