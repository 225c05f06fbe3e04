"""Diagnosis: 01.token-too-early

An isend that is waited for after the work has left before it.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist


def in_order(work: Callable[[], None]) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    if rank > 0:
        dist.recv(token, rank - 1)
    going = dist.isend(token, rank + 1) if rank < world - 1 else None
    work()
    if going is not None:
        going.wait()
