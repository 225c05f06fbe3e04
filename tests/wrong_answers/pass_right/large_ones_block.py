"""Diagnosis: 01.send-first

Above a megabyte everyone sends first, and no buffer hides it.
"""

import torch
import torch.distributed as dist


def pass_right(mine: torch.Tensor) -> torch.Tensor:
    rank, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return mine.clone()
    wire = mine.contiguous()
    theirs = torch.empty(mine.shape, dtype=mine.dtype)
    if wire.numel() * wire.element_size() > 2**20:  # no large buffers under way at once
        dist.send(wire, (rank + 1) % n)
        dist.recv(theirs, (rank - 1) % n)
        return theirs
    works = [dist.isend(wire, (rank + 1) % n), dist.irecv(theirs, (rank - 1) % n)]
    for work in works:
        work.wait()
    return theirs
