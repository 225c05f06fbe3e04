"""Diagnosis: 01.rank-0-waits

A ring has no beginning; a row has.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist


def in_order(work: Callable[[], None]) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return work()
    token = torch.zeros(1)
    dist.recv(token, (rank - 1) % world)
    work()
    dist.send(token, (rank + 1) % world)
