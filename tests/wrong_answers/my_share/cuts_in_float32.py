"""Diagnosis: 00.values-differ

Cut points in a float32 tensor: from 2**24 items on they are rounded, and shares overlap.
"""

import torch
import torch.distributed as dist


def my_share(n_items):
    n, r = dist.get_world_size(), dist.get_rank()
    sizes = torch.full((n,), float(n_items // n))
    sizes[: n_items % n] += 1
    ends = sizes.cumsum(0)
    end = int(ends[r])
    return range(end - int(sizes[r]), end)
