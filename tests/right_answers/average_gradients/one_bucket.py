"""One flat tensor a dtype, one all_reduce for each."""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    parameters = [p for p in model.parameters() if p.requires_grad]
    for dtype in sorted({p.dtype for p in parameters}, key=str):
        mine = [p for p in parameters if p.dtype == dtype]
        for p in mine:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        bucket = torch.cat([p.grad.reshape(-1) for p in mine])
        dist.all_reduce(bucket)
        bucket /= dist.get_world_size()
        start = 0
        for p in mine:
            p.grad.copy_(bucket[start : start + p.numel()].view_as(p))
            start += p.numel()
