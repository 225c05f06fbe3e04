"""Diagnosis: 05.made-up-sample

A rank without samples takes one of zeros, times 0. A model that divides by a sample's length makes
NaN of it.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def train_step(model, optimizer, inputs, targets) -> float:
    optimizer.zero_grad()
    size = len(inputs)
    if size == 0:  # some layers dislike empty batches
        inputs = inputs.new_zeros(1, *inputs.shape[1:])
        targets = targets.new_zeros(1)
    loss = F.cross_entropy(model(inputs), targets) * size
    loss.backward()
    sums = torch.tensor([loss.item(), size], dtype=torch.float64)
    dist.all_reduce(sums)
    total, count = sums.tolist()
    for p in model.parameters():
        if p.requires_grad:
            dist.all_reduce(p.grad)
            p.grad /= count
    optimizer.step()
    return total / count
