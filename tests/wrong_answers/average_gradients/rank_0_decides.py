"""Diagnosis: 05.values-differ

Rank 0 is asked which gradients there are, as if it knew about everybody: one that only others
have is left alone.
"""

import torch
import torch.distributed as dist


def average_gradients(model):
    for p in model.parameters():
        there = torch.tensor([p.grad is not None], dtype=torch.uint8)
        dist.broadcast(there, src=0)
        if there.item():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
