"""Diagnosis: 01.token-too-early

The word is passed on before the work instead of after it.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist


def in_order(work: Callable[[], None]) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    if rank > 0:
        dist.recv(token, rank - 1)
    if rank < world - 1:
        dist.send(token, rank + 1)
    work()
