"""Diagnosis: 06.moves-frozen

Every parameter gets a gradient, a frozen one zeros: weight decay moves it all the same.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    k = len(micro_batches)
    for p in ddp_model.parameters():  # forget what is left over
        p.grad = torch.zeros_like(p)
    total = 0.0
    for i, (inputs, targets) in enumerate(micro_batches):
        with ddp_model.no_sync() if i < k - 1 else nullcontext():
            loss = cross_entropy(ddp_model(inputs), targets) / k
            loss.backward()
        total += loss.item()
    clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    mean = torch.tensor([total], dtype=torch.float64)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()
