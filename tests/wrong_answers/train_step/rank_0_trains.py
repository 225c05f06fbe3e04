"""Diagnosis: 05.optimizers-differ

Rank 0 gets all batches, takes the step, and sends its weights round: nobody else's optimizer knows.
"""

import torch
import torch.distributed as dist
from torch import nn


def train_step(model, optimizer, inputs, targets):
    boxes = [None] * dist.get_world_size()
    dist.all_gather_object(boxes, (inputs, targets))
    loss = torch.zeros(1, dtype=torch.float64)
    if dist.get_rank() == 0:
        optimizer.zero_grad()
        x, y = (torch.cat(t) for t in zip(*boxes))
        value = nn.functional.cross_entropy(model(x), y)
        value.backward()
        optimizer.step()
        loss += value.item()
    for p in model.parameters():
        dist.broadcast(p.detach(), 0)
    dist.broadcast(loss, 0)
    return loss.item()
