"""dst takes one tensor after the other and puts it to its own."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce(tensor: Tensor, dst: int, op: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    outbox = tensor.contiguous()
    if rank != dst:
        dist.send(outbox, dst)
        return
    combine = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]
    inbox = torch.empty_like(outbox)
    for other in range(world):
        if other != dst:
            dist.recv(inbox, other)
            tensor.copy_(combine(tensor, inbox))
