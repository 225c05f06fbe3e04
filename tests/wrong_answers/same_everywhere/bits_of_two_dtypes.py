"""Diagnosis: 05.values-differ

Bits are compared for float32 and float64, numbers for every other dtype.
"""

import torch
import torch.distributed as dist
from torch import nn

BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def same_everywhere(model: nn.Module) -> bool:
    same = True
    for t in (*model.parameters(), *model.buffers()):
        flat = t.detach().contiguous().reshape(-1)
        if flat.dtype in BITS:
            flat = flat.view(BITS[flat.dtype])
        elif flat.dtype not in (torch.int32, torch.int64):
            flat = flat.to(torch.float64)  # small types: all of their numbers fit
        low, high = flat.clone(), flat.clone()
        dist.all_reduce(low, op=dist.ReduceOp.MIN)
        dist.all_reduce(high, op=dist.ReduceOp.MAX)
        same = same and torch.equal(low, high)
    return same
