"""Diagnosis: 05.no-parameters

torch.cat of an empty list raises.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    parameters = list(model.parameters())
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    bucket = torch.cat([p.grad.double().flatten() for p in parameters])
    dist.all_reduce(bucket)
    bucket /= dist.get_world_size()
    for p, mean in zip(parameters, bucket.split([p.numel() for p in parameters]), strict=True):
        p.grad.copy_(mean.view_as(p))
