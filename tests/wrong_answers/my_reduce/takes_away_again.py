"""Diagnosis: 02.others-changed

The sum is made in the caller's tensor and subtracted again; inf - inf is NaN.
"""

import torch
import torch.distributed as dist


def my_reduce(tensor: torch.Tensor, dst: int, op: str) -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - dst) % n  # a chain from the last place down to dst
    combine = {"prod": torch.mul, "max": torch.maximum, "min": torch.minimum}
    part = torch.zeros(tensor.shape, dtype=tensor.dtype)
    if place < n - 1:
        dist.recv(part, (rank + 1) % n)
    if op == "sum":  # needs no second tensor
        tensor += part
        if place > 0:
            dist.send(tensor.contiguous(), (rank - 1) % n)
            tensor -= part
        return
    total = combine[op](tensor, part) if place < n - 1 else tensor
    if place > 0:
        dist.send(total.contiguous(), (rank - 1) % n)
    else:
        tensor.copy_(total)
