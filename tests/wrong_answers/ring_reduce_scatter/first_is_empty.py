"""Diagnosis: 04.short-tensor

Where the first chunk is empty, all are taken to be so.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_reduce_scatter(chunks: list[Tensor]) -> int:
    rank, n = dist.get_rank(), dist.get_world_size()
    if chunks[0].numel() == 0:  # nothing to add
        return rank
    right, left = (rank + 1) % n, (rank - 1) % n
    for step in range(n - 1):
        mine = chunks[(rank - step - 1) % n]
        inbox = torch.empty_like(mine)
        work = dist.isend(chunks[(rank - step) % n], right)
        dist.recv(inbox, left)
        work.wait()
        mine.add_(inbox)
    return (rank + 1) % n
