"""Diagnosis: 06.not-reduced

Every rank gets everybody's micro-batches and takes the whole step alone.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm):
    optimizer.zero_grad()
    boxes = [None] * dist.get_world_size()
    dist.all_gather_object(boxes, micro_batches)
    micro_batches = [m for b in boxes for m in b]
    k, total = len(micro_batches), 0.0
    for i, (x, y) in enumerate(micro_batches):
        loss = nn.functional.cross_entropy(ddp_model.module(x), y) / k
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    mean = torch.tensor(total, dtype=torch.float64)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()
