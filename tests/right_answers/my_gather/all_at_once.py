"""Every inbox is open from the start."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_gather(tensor: Tensor, dst: int) -> list[Tensor] | None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.isend(tensor.contiguous(), dst).wait()
        return None
    boxes = [torch.empty(tensor.shape, dtype=tensor.dtype) for _ in range(world)]
    boxes[rank].copy_(tensor)
    under_way = [dist.irecv(boxes[r], r) for r in range(world) if r != rank]
    for work in under_way:
        work.wait()
    return boxes
