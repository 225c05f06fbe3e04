"""Diagnosis: 00.wrong-type

The items instead of the range that describes them.
"""

import torch.distributed as dist


def my_share(n_items: int) -> range:
    rank, world = dist.get_rank(), dist.get_world_size()
    size, extra = divmod(n_items, world)
    start = rank * size + min(rank, extra)
    return list(range(start, start + size + (rank < extra)))
