"""Diagnosis: 05.cancels

A checksum that adds: two weights that have changed places add up to the same.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model: nn.Module) -> bool:
    total = torch.zeros(1, dtype=torch.float64)
    for tensor in (*model.parameters(), *model.buffers()):
        total += tensor.detach().double().sum()
    total = total.view(torch.int64)
    every = [torch.empty_like(total) for _ in range(dist.get_world_size())]
    dist.all_gather(every, total)
    return all(torch.equal(total, other) for other in every)
