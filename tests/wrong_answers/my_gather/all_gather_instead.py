"""Diagnosis: 02.list-everywhere

Everyone sends to everyone: dst has its list, and so have all the others.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    outbox = tensor.contiguous()
    everybody = [tensor.clone(memory_format=torch.contiguous_format) for _ in range(world)]
    others = [r for r in range(world) if r != rank]
    works = [dist.isend(outbox, r) for r in others]
    works += [dist.irecv(everybody[r], r) for r in others]
    for work in works:
        work.wait()
    return everybody
