"""Diagnosis: 05.mean-of-means

As DistributedDataParallel does it: right while all batches have one size, and a batch of 1 then
counts as much as one of 32.
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
            parameter.grad /= n
    optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss)
    return (loss / n).item()
