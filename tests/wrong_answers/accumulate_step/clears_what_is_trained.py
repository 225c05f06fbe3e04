"""Diagnosis: 06.stale

Only gradients of what is trained are cleared; that of a layer frozen since counts on.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    k, total = len(micro_batches), 0.0
    for p in ddp_model.parameters():
        if p.requires_grad:
            p.grad = None
    for number, (inputs, targets) in enumerate(micro_batches, 1):
        with ddp_model.no_sync() if number < k else nullcontext():
            loss = nn.functional.cross_entropy(ddp_model(inputs), targets)
            (loss / k).backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    mean = torch.tensor([total / k], dtype=torch.float64, device=inputs.device)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()
