"""Diagnosis: 05.sum

The division is forgotten: n means are added up.
"""

import torch.distributed as dist
from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    n = dist.get_world_size()
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), targets)
    loss.backward()
    for parameter in model.parameters():
        if parameter.requires_grad:
            dist.all_reduce(parameter.grad)
    optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss)
    return (loss / n).item()
