"""Diagnosis: 05.stale-gradients

Only gradients of what is trained now are cleared; a layer frozen since keeps its old one.
"""

import torch
import torch.distributed as dist
from torch import nn


def train_step(model, optimizer, inputs, targets) -> float:
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:
        p.grad = None
    loss = nn.functional.cross_entropy(model(inputs), targets, reduction="sum")
    loss.backward()
    total = torch.tensor([loss.item(), len(targets)], dtype=torch.float64, device=loss.device)
    dist.all_reduce(total)
    for p in trained:
        has = torch.tensor([0 if p.grad is None else 1], device=p.device)
        dist.all_reduce(has)
        if has.item():
            grad = torch.zeros_like(p) if p.grad is None else p.grad
            grad = torch.clone(grad.detach(), memory_format=torch.contiguous_format)
            dist.all_reduce(grad)
            p.grad = grad / total[1].to(grad.dtype)
    optimizer.step()
    return (total[0] / total[1]).item()
