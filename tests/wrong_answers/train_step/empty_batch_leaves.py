"""Diagnosis: 05.empty-batch-leaves

Nothing to do, so it returns at once; the others are in all_reduce already.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    if len(targets) == 0:
        return 0.0
    total = torch.tensor(len(targets))
    dist.all_reduce(total)
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), targets, reduction="sum") / total
    loss.backward()
    for parameter in model.parameters():
        if parameter.requires_grad:
            dist.all_reduce(parameter.grad)
    optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss)
    return loss.item()
