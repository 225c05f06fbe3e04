"""Diagnosis: 05.some-layers

Walks through the direct children only: parameters further down are left alone.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model):
    for child in model.children():
        for p in child._parameters.values():
            if p is not None:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
