"""Diagnosis: 02.values-differ

The neutral element of max is minus infinity, as in masked scores, and no finite number.
"""

import torch
import torch.distributed as dist


def my_reduce(tensor: torch.Tensor, dst: int, op: str) -> None:
    if dist.get_rank() != dst:
        dist.send(tensor.contiguous(), dst=dst)
        return
    if op in ("max", "min"):
        limits = torch.finfo if tensor.dtype.is_floating_point else torch.iinfo
        start = limits(tensor.dtype).min if op == "max" else limits(tensor.dtype).max
    else:
        start = 0 if op == "sum" else 1
    combine = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]
    total = torch.full_like(tensor, start)
    for peer in range(dist.get_world_size()):
        part = tensor.clone(memory_format=torch.contiguous_format)
        if peer != dst:
            dist.recv(part, src=peer)
        total = combine(total, part)
    tensor.copy_(total)
