"""Diagnosis: 04.wrong-buffer

The ring of the classic PyTorch tutorial, which for years added a tensor of the rank's own instead
of the one that had just arrived: pytorch/pytorch#31572, mended by pytorch/tutorials#1039. Here
its loop, in place.
"""

import torch.distributed as dist
from torch import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    first, second, total = tensor.clone(), tensor.clone(), tensor.clone()
    for step in range(world - 1):
        outbox, inbox = (first, second) if step % 2 == 0 else (second, first)
        going = dist.isend(outbox, right)
        dist.recv(inbox, left)
        total += tensor
        going.wait()
    tensor.copy_(total)
