"""Diagnosis: 02.not-in-rank-order

A ring brings first the left neighbour's, then the one before: that is the order of the list.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_all_gather(tensor: Tensor) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    boxes = [tensor.clone(memory_format=torch.contiguous_format)]
    for step in range(world - 1):
        inbox = torch.empty_like(boxes[0])
        going = dist.isend(boxes[-1], (rank + 1) % world)
        dist.recv(inbox, (rank - 1) % world)
        going.wait()
        boxes.append(inbox)
    return boxes
