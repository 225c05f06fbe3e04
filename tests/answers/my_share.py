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


WHO = "rank, world = dist.get_rank(), dist.get_world_size()"
START = "rank * size + min(rank, extra)"
RANGE = "return range(start, start + size + (rank < extra))"
WRONG = {
    "local_rank": ("by_divmod", "00.off-by-one", "torchrun sets both RANK and LOCAL_RANK, and on "
                   "one machine they agree: docs.pytorch.org/docs/stable/elastic/run.html",
                   ("rank, world = dist.get_rank()",
                    "rank, world = int(os.environ['LOCAL_RANK'])")),
    "counts_the_ranks": ("by_divmod", "00.talks", "asks by a collective what every rank knows",
                         (WHO,
                          WHO + "; one = torch.ones(1); dist.all_reduce(one); world = int(one)")),
    "refuses_few": ("by_divmod", "00.only-empty-or-few", "a check of the arguments that refuses "
                    "what the text allows", (START, START + "; assert n_items >= world")),
    "carries_on": ("by_divmod", "00.only-calls", "a counter of what is done, for the next call",
                   ("(n_items):", "(n_items, done=[0]):"),
                   (START, START + " + done[0]; done[0] += n_items")),
    "a_list": ("by_divmod", "00.wrong-type", "the items, not the range that describes them",
               (RANGE, "return list(range(start, start + size + (rank < extra)))")),
    "prints": ("by_divmod", "00.returns-nothing", "a printed answer looks like one in a notebook",
               (RANGE, "print(range(start, start + size + (rank < extra)))")),
    "as_torch_chunk": ("by_rounding", "00.sizes", "torch.chunk rounds every share up, too",
                       ("-(-left // ranks_left)",
                        "min(left, -(-n_items // dist.get_world_size()))")),
    "one_item_each": ("by_divmod", "00.never-empty", "at least one item for everybody",
                      ("    start =", "    if size == 0:\n        return range(rank, rank + 1)\n"
                       "    start =")),
}  # fmt: skip
