"""Diagnosis: 00.off-by-one

Items counted from one, as people do and Python does not.
"""

import torch.distributed as dist


def my_share(n_items: int) -> range:
    rank, world = dist.get_rank(), dist.get_world_size()
    size, extra = divmod(n_items, world)
    start = rank * size + min(rank, extra) + 1
    return range(start, start + size + (rank < extra))
