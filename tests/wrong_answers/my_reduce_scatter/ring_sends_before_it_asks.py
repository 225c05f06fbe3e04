"""Diagnosis: 02.alone

The first block leaves before the loop, whether there is somebody to take it or not.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    blocks = [b.clone(memory_format=torch.contiguous_format) for b in tensor.tensor_split(world)]
    right, left = (rank + 1) % world, (rank - 1) % world
    going = dist.isend(blocks[left], right)
    for step in range(2, world + 1):
        inbox = torch.empty_like(blocks[0])
        dist.recv(inbox, left)
        going.wait()
        partial = blocks[(rank - step) % world] + inbox
        if step < world:
            going = dist.isend(partial, right)
    return partial if world > 1 else blocks[0]
