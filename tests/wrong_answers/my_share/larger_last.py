"""Diagnosis: 00.larger-last

Scaling rank / world by n_items and rounding down is neat and balanced; the larger shares come
out last, or wherever rounding puts them. Here they are counted from the end.
"""

import torch.distributed as dist


def my_share(n_items: int) -> range:
    rank, world = dist.get_rank(), dist.get_world_size()
    size, extra = divmod(n_items, world)
    smaller = world - extra
    start = rank * size + max(0, rank - smaller)
    return range(start, start + size + (rank >= smaller))
