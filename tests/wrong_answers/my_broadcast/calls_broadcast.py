"""Diagnosis: 02.collective

The shortest answer, and no answer.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    box = tensor.contiguous()
    dist.broadcast(box, src)
    tensor.copy_(box)
