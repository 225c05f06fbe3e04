"""Diagnosis: 02.one-buffer

A list times n is n times the same tensor.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_all_gather(tensor: Tensor) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    outbox = tensor.contiguous()
    others = [r for r in range(world) if r != rank]
    boxes = [tensor.clone(memory_format=torch.contiguous_format)] * world
    going = [dist.isend(outbox, r) for r in others]
    for r in others:
        dist.recv(boxes[r], r)
    for work in going:
        work.wait()
    return boxes
