"""Diagnosis: 01.pairs

The exclusive or is the neighbour in many a butterfly; here it makes pairs, not a ring.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    partner = rank ^ 1
    inbox = mine.clone(memory_format=torch.contiguous_format)
    if partner < world:
        works = [dist.isend(mine.contiguous(), partner), dist.irecv(inbox, partner)]
        for work in works:
            work.wait()
    return inbox
