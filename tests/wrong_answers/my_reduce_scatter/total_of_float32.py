"""Diagnosis: 02.dtype

The sum is made in torch's default dtype, which holds 24 bits of a number.
"""

import torch
import torch.distributed as dist


def my_reduce_scatter(tensor: torch.Tensor) -> torch.Tensor:
    rank, n = dist.get_rank(), dist.get_world_size()
    size = tensor.shape[0] // n
    packed = tensor.contiguous()
    blocks = [packed[r * size : (r + 1) * size] for r in range(n)]
    total = torch.zeros(blocks[rank].shape)
    total += blocks[rank]
    inbox = torch.empty_like(blocks[rank])
    works = [dist.isend(blocks[r], dst=r) for r in range(n) if r != rank]
    for r in range(n):
        if r != rank:
            dist.recv(inbox, src=r)
            total += inbox
    for work in works:
        work.wait()
    return total.to(tensor.dtype)
