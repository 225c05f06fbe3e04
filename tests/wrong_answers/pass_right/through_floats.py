"""Diagnosis: 01.values-differ

Models are float32, so messages are. Large integers come back rounded, and right in dtype.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return mine.clone()
    outbox = mine.float().contiguous()
    inbox = torch.empty_like(outbox)
    going = dist.isend(outbox, (rank + 1) % world)
    dist.recv(inbox, (rank - 1) % world)
    going.wait()
    return inbox.to(mine.dtype)
