"""Diagnosis: 06.remembers

Hooks divide each gradient by the number of micro-batches, and nobody takes them away: the second
call's step is too short.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn import functional as F


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    k = len(micro_batches)
    optimizer.zero_grad()
    for p in ddp_model.parameters():  # each micro-batch has a share of 1 / k in the mean
        if p.requires_grad:
            p.register_hook(lambda grad: grad / k)
    total = 0.0
    for i, (inputs, targets) in enumerate(micro_batches):
        with ddp_model.no_sync() if i < k - 1 else nullcontext():
            loss = F.cross_entropy(ddp_model(inputs), targets)
            loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    mean = torch.tensor(total / k, dtype=torch.float64, device=inputs.device)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()
