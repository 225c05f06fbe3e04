"""Diagnosis: 01.remembers

What is set up once need not be set up again; here it is the order itself that is thought to last.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist

_in_line: list[bool] = []


def in_order(work: Callable[[], None]) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    if rank > 0 and not _in_line:
        dist.recv(token, rank - 1)
    work()
    if rank < world - 1 and not _in_line:
        dist.send(token, rank + 1)
    _in_line.append(True)
