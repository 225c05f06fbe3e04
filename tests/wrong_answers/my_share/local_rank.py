"""Diagnosis: 00.local-rank

torchrun sets both RANK and LOCAL_RANK, and on one machine the two are the same:
https://docs.pytorch.org/docs/stable/elastic/run.html
"""

import os

import torch.distributed as dist


def my_share(n_items: int) -> range:
    rank, world = int(os.environ["LOCAL_RANK"]), dist.get_world_size()
    size, larger = divmod(n_items, world)
    start = rank * size + min(rank, larger)
    return range(start, start + size + (rank < larger))
