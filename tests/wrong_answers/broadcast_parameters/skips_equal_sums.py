"""Diagnosis: 05.equal-sums

Sends only tensors whose sums differ; the same numbers in another order have the same sum.
"""

import torch
import torch.distributed as dist
from torch import nn


def broadcast_parameters(model, src=0):
    for t in [*model.parameters(), *model.buffers()]:
        t = t.detach()
        s = t.double().sum()
        lo, hi = s.clone(), s.clone()
        dist.all_reduce(lo, op=dist.ReduceOp.MIN)
        dist.all_reduce(hi, op=dist.ReduceOp.MAX)
        if lo == hi:
            continue
        x = t.contiguous()
        dist.broadcast(x, src)
        t.copy_(x)
