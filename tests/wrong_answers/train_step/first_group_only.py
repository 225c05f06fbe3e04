"""Diagnosis: 05.values-differ

Averages the gradients of the optimizer's first parameter group.
"""

import torch
import torch.distributed as dist
from torch import nn


def train_step(model, optimizer, inputs, targets):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets, reduction="sum")
    loss.backward()
    both = torch.tensor([loss.item(), len(inputs)], dtype=torch.float64)
    dist.all_reduce(both)
    for p in optimizer.param_groups[0]["params"]:
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= both[1].item()
    optimizer.step()
    return (both[0] / both[1]).item()
