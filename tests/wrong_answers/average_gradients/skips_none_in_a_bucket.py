"""Diagnosis: 05.skips-none

One flat bucket of the gradients that are there: on a rank that lacks one it is shorter.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    if not grads:
        return
    bucket = torch.cat([g.double().reshape(-1) for g in grads])
    dist.all_reduce(bucket)
    bucket /= dist.get_world_size()
    for grad, mean in zip(grads, bucket.split([g.numel() for g in grads]), strict=True):
        grad.copy_(mean.view_as(grad))
