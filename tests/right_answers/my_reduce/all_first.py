"""All tensors first, then one reduction over the pile."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce(tensor: Tensor, dst: int, op: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.isend(tensor.contiguous(), dst).wait()
        return
    pile = torch.empty((world, *tensor.shape), dtype=tensor.dtype)
    pile[dst] = tensor
    for src in range(world):
        if src != dst:
            dist.recv(pile[src], src)
    how = {"sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin}[op]
    tensor.copy_(how(pile, 0))
