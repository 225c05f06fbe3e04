"""Diagnosis: 02.remembers

Takes whatever comes first and files it under its sender: a fast rank's second message lands in the
first call.
"""

import torch
import torch.distributed as dist
from torch import nn


def my_gather(tensor, dst):
    rank, n = dist.get_rank(), dist.get_world_size()
    x = tensor.contiguous()
    if rank != dst:
        dist.send(x, dst)
        return None
    boxes = [None] * n
    boxes[rank] = x.clone()
    for _ in range(n - 1):
        inbox = torch.empty(x.shape, dtype=x.dtype)
        boxes[dist.recv(inbox)] = inbox
    return boxes
