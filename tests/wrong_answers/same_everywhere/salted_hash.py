"""Diagnosis: 05.values-differ

Python's hash of bytes is salted anew in every process that is started by itself.
"""

import torch
import torch.distributed as dist
from torch import nn


def same_everywhere(model):
    tensors = [t.detach().contiguous() for t in (*model.parameters(), *model.buffers())]
    data = b"".join(t.reshape(-1).view(torch.uint8).numpy().tobytes() for t in tensors)
    mine = torch.tensor(hash(data))
    low, high = mine.clone(), mine.clone()
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    return bool(low == high)
