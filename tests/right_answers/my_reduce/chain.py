"""Each adds its own to what comes from the left, in a copy; dst is the last."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce(tensor: Tensor, dst: int, op: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    place = (rank - dst - 1) % world
    mine = tensor.clone(memory_format=torch.contiguous_format)
    if place > 0:
        inbox = torch.empty_like(mine)
        dist.recv(inbox, (rank - 1) % world)
        if op == "sum":
            mine += inbox
        elif op == "prod":
            mine *= inbox
        elif op == "max":
            mine = torch.max(mine, inbox)
        else:
            mine = torch.min(mine, inbox)
    if rank == dst:
        tensor.copy_(mine)
    else:
        dist.send(mine, (rank + 1) % world)
