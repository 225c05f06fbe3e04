"""Diagnosis: 02.own-missing

Only what came in a message gets into the list.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_all_gather(tensor: Tensor) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    outbox = tensor.contiguous()
    others = [r for r in range(world) if r != rank]
    boxes = [torch.empty_like(outbox) for _ in others]
    works = [dist.isend(outbox, r) for r in others]
    works += [dist.irecv(box, r) for box, r in zip(boxes, others)]
    for work in works:
        work.wait()
    return boxes
