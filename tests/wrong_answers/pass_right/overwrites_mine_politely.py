"""Diagnosis: 01.overwrites-mine

The outgoing copy is safe; the caller's tensor is not.
"""

import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world > 1:
        inbox = mine.contiguous().clone()
        going = dist.isend(mine.contiguous().clone(), (rank + 1) % world)
        dist.recv(inbox, (rank - 1) % world)
        going.wait()
        mine.copy_(inbox)
    return mine.clone()
