"""Diagnosis: 02.collective

The shortest answer, and no answer.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    size = len(tensor) // world
    mine = torch.empty((size, *tensor.shape[1:]), dtype=tensor.dtype)
    dist.reduce_scatter_single(mine, tensor.contiguous())
    return mine
