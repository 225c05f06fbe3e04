"""Diagnosis: 02.damages-input

A ring that adds up in the argument's own blocks, and returns a view of it on top.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    blocks = tensor.tensor_split(world)
    for step in range(1, world):
        inbox = torch.empty_like(blocks[0], memory_format=torch.contiguous_format)
        going = dist.isend(blocks[(rank - step) % world].contiguous(), (rank + 1) % world)
        dist.recv(inbox, (rank - 1) % world)
        going.wait()
        blocks[(rank - step - 1) % world].add_(inbox)
    return blocks[rank]
