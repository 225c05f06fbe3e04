"""Diagnosis: 04.remembers

Inboxes are kept for the next call, by length: it may come with another dtype.
"""

import torch
import torch.distributed as dist
from torch import Tensor

_inboxes = {}


def ring_reduce_scatter(chunks: list[Tensor]) -> int:
    rank, n = dist.get_rank(), dist.get_world_size()
    for step in range(n - 1):
        target = chunks[(rank - step - 1) % n]
        key = tuple(target.shape)
        if key not in _inboxes:  # allocating is slow
            _inboxes[key] = torch.empty(target.shape, dtype=target.dtype)
        sent = dist.isend(chunks[(rank - step) % n].contiguous(), (rank + 1) % n)
        dist.recv(_inboxes[key], (rank - 1) % n)
        sent.wait()
        target += _inboxes[key]
    return (rank + 1) % n
