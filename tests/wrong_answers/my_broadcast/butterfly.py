"""Diagnosis: 02.powers-of-two

Partners by exclusive or, which for three ranks names a rank 3.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % world
    box = tensor.contiguous().clone()
    for k in range((world - 1).bit_length()):
        partner = place ^ (1 << k)
        if place < 1 << (k + 1):
            if place < partner:
                dist.send(box, partner + src - (world if partner + src >= world else 0))
            else:
                dist.recv(box, (partner + src) % world)
    tensor.copy_(box)
