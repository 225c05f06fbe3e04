"""Diagnosis: 05.none-raises

A missing gradient is made of float32, whatever the parameter is.
"""

import torch
import torch.distributed as dist


def average_gradients(model):
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p, dtype=torch.float32)
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
