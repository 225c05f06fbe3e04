"""All gradients in one float64 bucket, whatever their dtype; copy_ converts them back."""

import torch
import torch.distributed as dist
from torch import nn


@torch.no_grad()
def average_gradients(model: nn.Module) -> None:
    parameters = list(model.parameters())
    if not parameters:
        return
    bucket = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).double().flatten() for p in parameters]
    )
    dist.all_reduce(bucket)
    bucket /= dist.get_world_size()
    for p, mean in zip(parameters, bucket.split([p.numel() for p in parameters]), strict=True):
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        p.grad.copy_(mean.view_as(p))
