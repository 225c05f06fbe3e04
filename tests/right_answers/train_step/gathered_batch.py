"""Everybody gets the whole batch and takes the step of one process: more computing, less asking."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, (inputs, targets))
    optimizer.zero_grad()
    x, y = (torch.cat(parts) for parts in zip(*every, strict=True))
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()
