"""Diagnosis: 02.adds

The same in a chain: whoever stands late in it has the sum of all before.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % world
    box = tensor.contiguous().clone()
    if place > 0:
        inbox = torch.empty_like(box)
        dist.recv(inbox, (rank - 1) % world)
        box = box + inbox
    if place < world - 1:
        dist.send(box, (rank + 1) % world)
    tensor.copy_(box)
