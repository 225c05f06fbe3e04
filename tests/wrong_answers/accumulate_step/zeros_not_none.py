"""Diagnosis: 06.stale

zero_grad(set_to_none=False) makes a gradient of zeros of one that was left over, and weight decay
moves what has a gradient.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    optimizer.zero_grad(set_to_none=False)  # DDP's bucket views stay where they are
    k, total = len(micro_batches), 0.0
    for i, (x, y) in enumerate(micro_batches, 1):
        with ddp_model.no_sync() if i < k else nullcontext():
            loss = cross_entropy(ddp_model(x), y) / k
            loss.backward()
        total = total + loss.detach()
    torch.nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    dist.all_reduce(total)
    return (total / dist.get_world_size()).item()
