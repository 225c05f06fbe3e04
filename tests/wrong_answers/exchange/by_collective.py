"""Diagnosis: 01.collective

Gathering everything everywhere and picking one: right, and n times the bytes.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def exchange(mine: Tensor, partner: int) -> Tensor:
    everybody = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, mine.contiguous())
    return everybody[partner].clone()
