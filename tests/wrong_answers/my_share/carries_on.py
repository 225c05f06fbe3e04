"""Diagnosis: 00.remembers

A counter beside the function, to know where the next batch of items begins. Every call is about
items 0 to n_items − 1; the second one begins where the first has stopped.
"""

import torch.distributed as dist

done = 0


def my_share(n_items: int) -> range:
    global done
    rank, world = dist.get_rank(), dist.get_world_size()
    size, extra = divmod(n_items, world)
    start = done + rank * size + min(rank, extra)
    done += n_items
    return range(start, start + size + (rank < extra))
