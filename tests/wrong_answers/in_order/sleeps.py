"""Diagnosis: 01.sleeps

Who sleeps longer comes later, until somebody's work takes longer than a nap.
"""

import time
from collections.abc import Callable

import torch.distributed as dist


def in_order(work: Callable[[], None]) -> None:
    time.sleep(dist.get_rank() * 0.5)
    work()
