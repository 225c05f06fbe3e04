"""Diagnosis: 05.local-loss

The rank's part of the global mean, never added up.
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
    for parameter in model.parameters():
        if parameter.requires_grad:
            dist.all_reduce(parameter.grad)
    optimizer.step()
    return loss.item()
