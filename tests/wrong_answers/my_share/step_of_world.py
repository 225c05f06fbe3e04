"""Diagnosis: 00.values-differ

Where items are few, range(n)[rank::ranks] has the right item, and a step that is not 1.
"""

import torch.distributed as dist


def my_share(n_items: int) -> range:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if n_items <= world_size:
        return range(n_items)[rank::world_size]  # one item each, while they last
    size, extra = divmod(n_items, world_size)
    start = rank * size + min(rank, extra)
    return range(start, start + size + (rank < extra))
