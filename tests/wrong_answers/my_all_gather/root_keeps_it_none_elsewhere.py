"""Diagnosis: 02.root-keeps-it

The gather of the exercise before, and nothing after it.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_all_gather(tensor: Tensor) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != 0:
        dist.send(tensor.contiguous(), 0)
        return None
    boxes = [tensor.clone(memory_format=torch.contiguous_format) for _ in range(world)]
    for r in range(1, world):
        dist.recv(boxes[r], r)
    return boxes
