"""Diagnosis: 02.chain-from-0

The chain of the first sketch, 0 to 1 to 2: src, wherever it stands, is told what rank 0 has.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    box = tensor.contiguous().clone()
    if rank > 0:
        dist.recv(box, rank - 1)
    if rank < world - 1:
        dist.send(box, rank + 1)
    tensor.copy_(box)
