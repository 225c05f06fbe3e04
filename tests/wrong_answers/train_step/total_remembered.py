"""Diagnosis: 05.remembers

How many samples there are in all is asked once and kept on the optimizer; the last batch of an
epoch is smaller.
"""

import torch
import torch.distributed as dist
from torch import nn


def train_step(model, optimizer, inputs, targets) -> float:
    model.zero_grad()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets, reduction="sum")
    loss.backward()
    if not hasattr(optimizer, "samples_in_all"):
        count = torch.tensor([len(targets)], device=loss.device)
        dist.all_reduce(count)
        optimizer.samples_in_all = count.item()
    total = torch.tensor([loss.item()], dtype=torch.float64, device=loss.device)
    dist.all_reduce(total)
    for p in model.parameters():
        if not p.requires_grad:
            continue
        has = torch.tensor([0 if p.grad is None else 1], device=p.device)
        dist.all_reduce(has)
        if has.item():
            grad = torch.zeros_like(p) if p.grad is None else p.grad
            grad = torch.clone(grad.detach(), memory_format=torch.contiguous_format)
            dist.all_reduce(grad)
            p.grad = grad / optimizer.samples_in_all
    optimizer.step()
    return total.item() / optimizer.samples_in_all
