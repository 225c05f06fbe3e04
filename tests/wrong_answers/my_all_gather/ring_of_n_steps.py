"""Diagnosis: 02.alone

One step too many round the ring brings back the own tensor and harms nobody, unless one is alone.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_all_gather(tensor: Tensor) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    boxes = [tensor.clone(memory_format=torch.contiguous_format) for _ in range(world)]
    for step in range(world):
        outbox = boxes[(rank - step) % world].clone()
        going = dist.isend(outbox, (rank + 1) % world)
        dist.recv(boxes[(rank - step - 1) % world], (rank - 1) % world)
        going.wait()
    return boxes
