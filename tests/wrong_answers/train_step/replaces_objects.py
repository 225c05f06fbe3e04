"""Diagnosis: 05.replaces

The numbers are right, in Parameters of which the optimizer knows nothing.
"""

import torch
import torch.distributed as dist
from torch import nn
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
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            module._parameters[name] = nn.Parameter(parameter.detach(), parameter.requires_grad)
    loss = loss.detach()
    dist.all_reduce(loss)
    return loss.item()
