"""Diagnosis: 04.whole-tensor-each-way

2(n-1) steps as in the real one, with the whole tensor in each of them: the sum is complete after
half of them and goes round once more. After the ring exercise of a widely used curriculum.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    outbox, total = tensor.contiguous().clone(), tensor.contiguous().clone()
    for step in range(2 * (world - 1)):
        inbox = torch.empty_like(outbox)
        going = dist.isend(outbox, right)
        dist.recv(inbox, left)
        going.wait()
        if step < world - 1:
            total += inbox
        outbox = inbox
    tensor.copy_(total)
