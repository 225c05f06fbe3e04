"""Diagnosis: 00.values-differ

Two rules again: from a million items on the cut points are rounded up, in 32 bits.
"""

import torch
import torch.distributed as dist


def my_share(n_items):
    n, r = dist.get_world_size(), dist.get_rank()
    cuts = -(
        -(torch.arange(n + 1, dtype=torch.int32) * torch.tensor(n_items, dtype=torch.int32)) // n
    )
    q, m = divmod(n_items, n)
    if n_items < 2**20:
        s = r * q + min(r, m)
        return range(s, s + q + (r < m))
    return range(int(cuts[r]), int(cuts[r + 1]))
