"""Diagnosis: 05.calls-differ

Odd ranks go through the parameters backwards.
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
    order = -1 if dist.get_rank() % 2 else 1
    for parameter in list(model.parameters())[::order]:
        if parameter.requires_grad:
            dist.all_reduce(parameter.grad)
    optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss)
    return loss.item()
