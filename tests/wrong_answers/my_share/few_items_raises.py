"""Diagnosis: 00.few-items

A check of the arguments that refuses what the exercise allows.
"""

import torch.distributed as dist


def my_share(n_items: int) -> range:
    rank, world = dist.get_rank(), dist.get_world_size()
    if n_items < world:
        raise ValueError("not enough items")
    size, extra = divmod(n_items, world)
    start = rank * size + min(rank, extra)
    return range(start, start + size + (rank < extra))
