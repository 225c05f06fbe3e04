"""Diagnosis: 00.remembers

The blocks are kept by the size of the smaller ones, which several lengths have in common.
"""

import torch.distributed as dist

_bounds = {}


def my_share(n_items: int) -> range:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    base, extra = divmod(n_items, world_size)
    if base not in _bounds:  # worked out once for each size of block
        _bounds[base] = [r * base + min(r, extra) for r in range(world_size + 1)]
    bounds = _bounds[base]
    return range(bounds[rank], bounds[rank + 1])
