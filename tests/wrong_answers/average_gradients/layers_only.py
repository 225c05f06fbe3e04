"""Diagnosis: 05.some-layers

children() has a model's layers, and not the parameters that it holds itself.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    n = dist.get_world_size()
    layers = list(model.children()) or [model]
    for layer in layers:
        for p in layer.parameters():
            if not p.requires_grad:
                continue
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            grad = p.grad.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(grad)
            p.grad.copy_(grad / n)
