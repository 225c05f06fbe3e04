"""Answers to micro_batches."""

import math

import numpy as np
import torch
import torch.distributed as dist


def by_splitting(global_batch, largest):
    shares = torch.arange(global_batch).tensor_split(dist.get_world_size())
    count = -(-len(shares[0]) // largest)
    if not count:
        return []
    return [len(part) for part in shares[dist.get_rank()].tensor_split(count)]


def by_numpy(global_batch, largest):
    rank, n = dist.get_rank(), dist.get_world_size()
    count = math.ceil(math.ceil(global_batch / n) / largest)
    if not count:
        return []
    mine = np.array_split(np.arange(global_batch), n)[rank]
    return list(np.array([len(part) for part in np.array_split(mine, count)]))


def by_dealing(global_batch, largest):
    """Cuts the whole batch into the micro-batches of all ranks: each n-th is this rank's."""
    n = dist.get_world_size()
    count = n * -(-global_batch // (n * largest))
    sizes = [global_batch // count + (k < global_batch % count) for k in range(count)]
    return sizes[dist.get_rank() :: n]


WRONG = """
== solution
more_on_the_last, other-ranks: cuts at rank * size / n
~ size + (rank < rest) => (rank + 1) * global_batch // n - rank * global_batch // n
== by_splitting
counts_its_own, own-count: each rank cuts what it has
~ len(shares[0]) => len(shares[dist.get_rank()])
empty_batch, only-empty: nothing to do is no case
-     if not count:
-         return []
"""
