"""Diagnosis: 05.empty-batch

An empty batch gets a sample of zeros, so that nothing can go wrong; it is counted, and learnt.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    if not len(targets):
        inputs = inputs.new_zeros(1, *inputs.shape[1:])
        targets = targets.new_zeros(1)
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
