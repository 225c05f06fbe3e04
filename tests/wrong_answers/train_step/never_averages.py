"""Diagnosis: 05.steps-first

Only the loss is shared: the curve looks fine, and there are n models.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    total = torch.tensor(len(targets))
    dist.all_reduce(total)
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), targets, reduction="sum")
    (loss / max(1, len(targets))).backward()
    optimizer.step()
    loss = loss.detach() / total
    dist.all_reduce(loss)
    return loss.item()
