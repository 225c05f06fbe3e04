"""What came last goes on to the right."""

import torch
import torch.distributed as dist
from torch import Tensor


def my_all_gather(tensor: Tensor) -> list[Tensor]:
    rank, world = dist.get_rank(), dist.get_world_size()
    boxes = [torch.empty(tensor.shape, dtype=tensor.dtype) for _ in range(world)]
    boxes[rank].copy_(tensor)
    for step in range(world - 1):
        going = dist.isend(boxes[(rank - step) % world], (rank + 1) % world)
        dist.recv(boxes[(rank - step - 1) % world], (rank - 1) % world)
        going.wait()
    return boxes
