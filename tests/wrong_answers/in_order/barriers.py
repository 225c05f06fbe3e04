"""Diagnosis: 01.barrier

n barriers make it right, and a meeting of everybody at every turn; it is to be done by passing a
word on.
"""

from collections.abc import Callable

import torch.distributed as dist


def in_order(work: Callable[[], None]) -> None:
    for turn in range(dist.get_world_size()):
        if turn == dist.get_rank():
            work()
        dist.barrier()
