"""Diagnosis: 00.drops-remainder

Integer division gives the size of a share, and nobody asks what is left over. It passes every
try in which the number of items is a multiple of the number of ranks.
"""

import torch.distributed as dist


def my_share(n_items: int) -> range:
    size = n_items // dist.get_world_size()
    start = dist.get_rank() * size
    return range(start, start + size)
