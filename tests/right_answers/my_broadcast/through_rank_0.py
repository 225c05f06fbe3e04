"""src hands it to rank 0, who is the one that tells everybody: a detour, and right."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    box = tensor.contiguous().clone()
    if src != 0 and rank == src:
        dist.send(box, 0)
    if rank == 0:
        if src != 0:
            dist.recv(box, src)
        for other in range(1, world):
            dist.send(box, other)
    else:
        dist.recv(box, 0)
    tensor.copy_(box)
