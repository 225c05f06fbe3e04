"""Diagnosis: 00.few-items

Somebody thought that every rank has to have something to do.
"""

import torch.distributed as dist


def my_share(n_items: int) -> range:
    rank, world = dist.get_rank(), dist.get_world_size()
    size, extra = divmod(n_items, world)
    if size == 0:
        return range(rank, rank + 1)
    start = rank * size + min(rank, extra)
    return range(start, start + size + (rank < extra))
