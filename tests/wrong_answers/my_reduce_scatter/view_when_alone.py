"""Diagnosis: 02.shares-memory

total + inbox makes a new tensor each time. Alone there is no time, and what is returned is a
view.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    blocks = [block.contiguous() for block in tensor.tensor_split(world)]
    others = [r for r in range(world) if r != rank]
    total = blocks[rank]
    inbox = torch.empty_like(total)
    going = [dist.isend(blocks[r], r) for r in others]
    for r in others:
        dist.recv(inbox, r)
        total = total + inbox
    for work in going:
        work.wait()
    return total
