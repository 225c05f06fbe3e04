"""Diagnosis: 00.remembers

Computed once and kept, under a key that leaves out what the answer depends on.
"""

import torch.distributed as dist

shares = {}


def my_share(n_items: int) -> range:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank not in shares:
        size, extra = divmod(n_items, world)
        start = rank * size + min(rank, extra)
        shares[rank] = range(start, start + size + (rank < extra))
    return shares[rank]
