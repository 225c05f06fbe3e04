"""Diagnosis: 05.steps-first

Two lines in the wrong order: every rank steps on its own, and then they average what nobody uses.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    total = torch.tensor(len(targets))
    dist.all_reduce(total)
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), targets, reduction="sum") / total
    loss.backward()
    optimizer.step()
    for parameter in model.parameters():
        if parameter.requires_grad:
            dist.all_reduce(parameter.grad)
    loss = loss.detach()
    dist.all_reduce(loss)
    return loss.item()
