"""Diagnosis: 00.returns-nothing

Printing looks like an answer in a notebook.
"""

import torch.distributed as dist


def my_share(n_items: int) -> range:
    rank, world = dist.get_rank(), dist.get_world_size()
    size, extra = divmod(n_items, world)
    start = rank * size + min(rank, extra)
    print(range(start, start + size + (rank < extra)))
