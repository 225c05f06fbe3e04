"""Diagnosis: 02.collective

The shortest answer, and no answer.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def my_reduce(tensor: Tensor, dst: int, op: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    how = {
        "sum": dist.ReduceOp.SUM,
        "prod": dist.ReduceOp.PRODUCT,
        "max": dist.ReduceOp.MAX,
        "min": dist.ReduceOp.MIN,
    }[op]
    box = tensor.contiguous().clone()
    dist.reduce(box, dst, how)
    if rank == dst:
        tensor.copy_(box)
