"""Diagnosis: 01.collective

Everything to everybody, to get one.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def pass_right(mine: Tensor) -> Tensor:
    everybody = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, mine.contiguous())
    return everybody[dist.get_rank() - 1].clone()
