"""Diagnosis: 05.alone

The sizes go to the right neighbour first; a rank that is alone has none.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    n, rank = dist.get_world_size(), dist.get_rank()
    going = dist.isend(torch.zeros(1), (rank + 1) % n)
    dist.recv(torch.zeros(1), (rank - 1) % n)
    going.wait()
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
