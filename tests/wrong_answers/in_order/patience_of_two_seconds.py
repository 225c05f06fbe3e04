"""Diagnosis: 01.read-before-wait

After two seconds it begins anyway, so as not to hang for ever; then it sends on what never came.
"""

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist


def in_order(work: Callable[[], None]) -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    if rank > 0:
        try:
            dist.irecv(token, src=rank - 1).wait(timedelta(seconds=2))
        except RuntimeError:
            pass  # better late than never: do not hang for ever
    work()
    if rank < n - 1:
        dist.send(token, dst=rank + 1)
