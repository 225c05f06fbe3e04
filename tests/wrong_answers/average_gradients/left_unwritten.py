"""Diagnosis: 05.left-unwritten

torch.cat copies: the bucket is averaged, and nobody copies it back.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    parameters = [p for p in model.parameters() if p.requires_grad]
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    bucket = torch.cat([torch.zeros(1), *(p.grad.flatten() for p in parameters)])
    dist.all_reduce(bucket)
    bucket /= dist.get_world_size()
