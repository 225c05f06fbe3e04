"""Diagnosis: 02.collective

The shortest answer, and no answer.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_all_gather(tensor: Tensor) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    boxes = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(world)]
    dist.all_gather(boxes, tensor.contiguous())
    return boxes
