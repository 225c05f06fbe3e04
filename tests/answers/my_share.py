"""Answers to my_share."""

import os

import torch
import torch.distributed as dist


def by_divmod(n_items):
    rank, world = dist.get_rank(), dist.get_world_size()
    size, extra = divmod(n_items, world)
    start = rank * size + min(rank, extra)
    return range(start, start + size + (rank < extra))


def by_rounding(n_items):
    start, left = 0, n_items
    for ranks_left in range(dist.get_world_size(), 0, -1):
        size = -(-left // ranks_left)  # what is left for the others, rounded up
        if dist.get_world_size() - ranks_left == dist.get_rank():
            return range(start, start + size)
        start, left = start + size, left - size
    raise AssertionError("no such rank")


def torch_splits(n_items):
    pieces = torch.arange(n_items).tensor_split(dist.get_world_size())
    start = sum(len(piece) for piece in pieces[: dist.get_rank()])
    return range(start, start + len(pieces[dist.get_rank()]))


WRONG = """
== by_divmod
local_rank, off-by-one: torchrun sets both RANK and LOCAL_RANK, and on one machine they agree:
docs.pytorch.org/docs/stable/elastic/run.html
~ rank, world = dist.get_rank() => rank, world = int(os.environ['LOCAL_RANK'])
counts_the_ranks, talks: asks by a collective what every rank knows
      rank, world = dist.get_rank(), dist.get_world_size()
+     dist.all_reduce(one := torch.ones(1))
+     world = int(one)
refuses_few, only-empty-or-few: a check of the arguments that refuses what the text allows
~ rank * size + min(rank, extra) => rank * size + min(rank, extra); assert n_items >= world
carries_on, only-calls: a counter of what is done, for the next call
~ (n_items): => (n_items, done=[0]):
~ rank * size + min(rank, extra) => rank * size + min(rank, extra) + done[0]; done[0] += n_items
a_list, wrong-type: the items, not the range that describes them
-     return range(start, start + size + (rank < extra))
+     return list(range(start, start + size + (rank < extra)))
prints, returns-nothing: a printed answer looks like one in a notebook
-     return range(start, start + size + (rank < extra))
+     print(range(start, start + size + (rank < extra)))
== by_rounding
as_torch_chunk, sizes: torch.chunk rounds every share up, too
~ -(-left // ranks_left) => min(left, -(-n_items // dist.get_world_size()))
"""
