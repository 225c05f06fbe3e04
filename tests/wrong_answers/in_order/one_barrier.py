"""Diagnosis: 01.barrier

A barrier makes ranks meet; it does not put them in a row.
"""

from collections.abc import Callable

import torch.distributed as dist


def in_order(work: Callable[[], None]) -> None:
    dist.barrier()
    work()
