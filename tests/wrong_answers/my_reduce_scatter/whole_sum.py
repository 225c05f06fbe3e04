"""Diagnosis: 02.whole-sum

An all_reduce: everyone keeps everything.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce_scatter(tensor: Tensor) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    outbox = tensor.contiguous()
    others = [r for r in range(world) if r != rank]
    going = [dist.isend(outbox, r) for r in others]
    total, inbox = outbox.clone(), torch.empty_like(outbox)
    for r in others:
        dist.recv(inbox, r)
        total += inbox
    for work in going:
        work.wait()
    return total
