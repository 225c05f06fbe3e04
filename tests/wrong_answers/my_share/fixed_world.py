"""Diagnosis: 00.fixed-world

Four ranks were on the screen while this was written, so four became a number in the code.
"""

import torch.distributed as dist


def my_share(n_items: int) -> range:
    rank, world = dist.get_rank(), 4
    size, extra = divmod(n_items, world)
    start = rank * size + min(rank, extra)
    return range(start, start + size + (rank < extra))
