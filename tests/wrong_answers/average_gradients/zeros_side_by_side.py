"""Diagnosis: 05.zeros-in-another-order

torch.zeros lays out rows one after the other, a gradient lies as its parameter does, and
all_reduce adds up memory as it lies.
"""

import torch
import torch.distributed as dist


def average_gradients(model):
    n = dist.get_world_size()
    for p in model.parameters():
        if not p.requires_grad:
            continue
        if p.grad is None:
            p.grad = torch.zeros(p.shape, dtype=p.dtype)
        dist.all_reduce(p.grad)
        p.grad /= n
