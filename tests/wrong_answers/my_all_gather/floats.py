"""Diagnosis: 02.dtype

torch.zeros makes float32 unless it is told otherwise.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_all_gather(tensor: Tensor) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    outbox = tensor.contiguous()
    others = [r for r in range(world) if r != rank]
    boxes = [torch.zeros(tensor.shape) for _ in range(world)]
    boxes[rank] = tensor.clone()
    works = [dist.isend(outbox, r) for r in others] + [dist.irecv(boxes[r], r) for r in others]
    for work in works:
        work.wait()
    return boxes
