"""Each block travels once, straight to the rank that adds it up."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    blocks = tensor.contiguous().chunk(world)
    others = [r for r in range(world) if r != rank]
    going = [dist.isend(blocks[r], r) for r in others]
    total = blocks[rank].clone()
    inbox = torch.empty_like(total)
    for r in others:
        dist.recv(inbox, r)
        total += inbox
    for work in going:
        work.wait()
    return total
