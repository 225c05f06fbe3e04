"""Diagnosis: 02.values-differ

Only what is not equal is overwritten; 0.0 is equal to -0.0, and 1 / x is not.
"""

import torch
import torch.distributed as dist


def my_broadcast(tensor: torch.Tensor, src: int) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank == src:
        wire = tensor.contiguous()
        works = [dist.isend(wire, r) for r in range(world_size) if r != src]
        for work in works:
            work.wait()
        return
    inbox = torch.empty(tensor.shape, dtype=tensor.dtype)
    dist.recv(inbox, src=src)
    new = tensor != inbox  # leave alone what is right already
    tensor[new] = inbox[new]
