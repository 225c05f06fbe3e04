"""Diagnosis: 01.overwrites-mine

One tensor for what goes and what comes.
"""

import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world > 1:
        going = dist.isend(mine, (rank + 1) % world)
        dist.recv(mine, (rank - 1) % world)
        going.wait()
    return mine.clone()
