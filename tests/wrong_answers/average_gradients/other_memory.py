"""Diagnosis: 05.replaces

Puts new memory under the old gradient: whoever looks into the old one, as a flat bucket does, sees
nothing.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model):
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        total = p.grad.detach().clone().contiguous()
        dist.all_reduce(total)
        p.grad.data = total / dist.get_world_size()
