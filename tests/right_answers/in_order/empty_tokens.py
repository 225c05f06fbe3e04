"""A token needs no contents: an empty tensor says as much, here sent asynchronously."""

from collections.abc import Callable

import torch
import torch.distributed as dist


def in_order(work: Callable[[], None]) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank:
        dist.irecv(torch.empty(0), rank - 1).wait()
    work()
    if rank + 1 < world:
        dist.isend(torch.empty(0), rank + 1).wait()
