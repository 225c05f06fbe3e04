"""Diagnosis: 02.talks-to-itself

Everybody means everybody.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_all_gather(tensor: Tensor) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    outbox = tensor.contiguous()
    boxes = [torch.empty_like(outbox) for _ in range(world)]
    works = [dist.isend(outbox, r) for r in range(world)]
    works += [dist.irecv(boxes[r], r) for r in range(world)]
    for work in works:
        work.wait()
    return boxes
