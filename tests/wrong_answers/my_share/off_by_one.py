"""Diagnosis: 00.off-by-one

A range stops before its end; whoever forgets that takes one more off it.
"""

import torch.distributed as dist


def my_share(n_items: int) -> range:
    rank, world = dist.get_rank(), dist.get_world_size()
    size, extra = divmod(n_items, world)
    start = rank * size + min(rank, extra)
    stop = start + size + (1 if rank < extra else 0)
    return range(start, stop - 1)
