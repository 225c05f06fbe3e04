"""Diagnosis: 01.values-differ

Rank 0 hands out turns, and takes the next request from whoever it comes from: one at a time, and in
the order in which messages happen to arrive. On an even network that is the order of ranks.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist


def in_order(work: Callable[[], None]) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    if rank == 0:
        work()
        for _ in range(world - 1):
            asking = dist.recv(token)
            dist.send(token, asking)
            dist.recv(token, asking)
    else:
        dist.send(token, 0)
        dist.recv(token, 0)
        work()
        dist.send(token, 0)
