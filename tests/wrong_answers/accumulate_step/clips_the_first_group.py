"""Diagnosis: 06.values-differ

The optimizer's first group stands for all: the others are in no norm, and are never clipped.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    optimizer.zero_grad()
    for p in ddp_model.parameters():
        p.grad = None
    k, total = len(micro_batches), 0.0
    for number, (inputs, targets) in enumerate(micro_batches, 1):
        with ddp_model.no_sync() if number < k else nullcontext():
            loss = nn.functional.cross_entropy(ddp_model(inputs), targets) / k
            loss.backward()
        total = total + loss.detach()
    dist.all_reduce(total)
    torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], max_norm)
    optimizer.step()
    return total.item() / dist.get_world_size()
