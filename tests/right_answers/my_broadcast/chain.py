"""From src along the row, and round its end."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_broadcast(tensor: Tensor, src: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % world
    box = tensor.clone(memory_format=torch.contiguous_format)
    if place > 0:
        dist.recv(box, (rank - 1) % world)
    if place < world - 1:
        dist.send(box, (rank + 1) % world)
    tensor.copy_(box)
