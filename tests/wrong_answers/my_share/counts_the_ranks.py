"""Diagnosis: 00.talks

Asks by a collective what every rank knows: get_world_size reads a number, and sends nothing.
"""

import torch
import torch.distributed as dist


def my_share(n_items):
    ranks = torch.ones(1, dtype=torch.int64)
    dist.all_reduce(ranks)
    each, more = divmod(n_items, int(ranks))
    me = dist.get_rank()
    first = me * each + min(me, more)
    return range(first, first + each + (me < more))
