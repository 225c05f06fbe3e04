"""Diagnosis: 06.no-norm

`if max_norm:` is meant to ask whether there is one; 0.0 is one, too.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    k = len(micro_batches)
    optimizer.zero_grad()
    total = 0.0
    for i, (inputs, targets) in enumerate(micro_batches):
        with ddp_model.no_sync() if i < k - 1 else nullcontext():
            loss = cross_entropy(ddp_model(inputs), targets) / k
            loss.backward()
        total += loss.item()
    if max_norm:
        clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    mean = torch.tensor([total], dtype=torch.float64)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()
