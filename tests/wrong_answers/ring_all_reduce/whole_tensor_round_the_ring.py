"""Diagnosis: 04.whole-tensor-ring

Right, and n/2 times the bytes: each step passes on the whole tensor that came in the step before.
The tutorial's ring does so since it was mended, and its text says so.
"""

import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    outbox, inbox = tensor.contiguous().clone(), tensor.contiguous().clone()
    total = tensor.clone()
    for _ in range(world - 1):
        going = dist.isend(outbox, right)
        dist.recv(inbox, left)
        going.wait()
        total += inbox
        outbox, inbox = inbox, outbox
    tensor.copy_(total)
