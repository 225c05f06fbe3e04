"""Diagnosis: 00.values-differ

Two rules, one for small counts and a rougher one from a thousand items on.
"""

import torch.distributed as dist


def my_share(n_items):
    n, r = dist.get_world_size(), dist.get_rank()
    if n_items >= 1000:
        q = -(-n_items // n)
        return range(min(r * q, n_items), min((r + 1) * q, n_items))
    q, m = divmod(n_items, n)
    s = r * q + min(r, m)
    return range(s, s + q + (r < m))
