"""Diagnosis: 02.read-before-wait

The list is copied "to be safe" while the messages are on their way.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return None
    boxes = [tensor.clone(memory_format=torch.contiguous_format) for _ in range(world)]
    works = [dist.irecv(boxes[r], r) for r in range(world) if r != rank]
    everybody = [box.clone() for box in boxes]
    for work in works:
        work.wait()
    return everybody
