"""Diagnosis: 05.mean-of-means

Empty batches are left out, and the others count equally.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    optimizer.zero_grad()
    busy = torch.tensor(float(len(targets) > 0))
    dist.all_reduce(busy)
    loss = cross_entropy(model(inputs), targets, reduction="sum") / max(1, len(targets))
    loss.backward()
    for parameter in model.parameters():
        if parameter.requires_grad:
            dist.all_reduce(parameter.grad)
            parameter.grad /= busy
    optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss)
    return (loss / busy).item()
