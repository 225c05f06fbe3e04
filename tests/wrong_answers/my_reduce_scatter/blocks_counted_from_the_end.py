"""Diagnosis: 02.wrong-block

Block n − 1 − r for rank r, consistently on both sides.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    size = len(tensor) // world
    others = [r for r in range(world) if r != rank]
    mine = world - 1 - rank
    total = tensor[mine * size : (mine + 1) * size].clone(memory_format=torch.contiguous_format)
    inbox = torch.empty_like(total)
    going = [
        dist.isend(tensor[(world - 1 - r) * size : (world - r) * size].contiguous(), r)
        for r in others
    ]
    for r in others:
        dist.recv(inbox, r)
        total += inbox
    for work in going:
        work.wait()
    return total
