"""Diagnosis: 02.dtype

min(x) is −max(−x), but not for numbers that have no negative.
"""

import torch
import torch.distributed as dist
from torch import nn


def my_reduce(tensor, dst, op):
    rank, n = dist.get_rank(), dist.get_world_size()
    x = (-tensor if op == "min" else tensor).contiguous()
    if rank != dst:
        dist.send(x, dst)
        return
    total = x.clone()
    for p in range(n):
        if p != dst:
            box = torch.empty_like(x)
            dist.recv(box, p)
            total = {"sum": torch.add, "prod": torch.mul}.get(op, torch.maximum)(total, box)
    tensor.copy_(-total if op == "min" else total)
