"""Answers to same_everywhere."""

import hashlib

import torch
import torch.distributed as dist
from torch import nn


def by_digest(model):
    digest = hashlib.sha256()
    for tensor in (*model.parameters(), *model.buffers()):
        digest.update(bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()))
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, digest.hexdigest())
    return len(set(every)) == 1


def compared_with_rank_0(model):
    answer = torch.ones(1, dtype=torch.int64)
    for tensor in (*model.parameters(), *model.buffers()):
        mine = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        of_rank_0 = mine.clone()
        dist.broadcast(of_rank_0, 0)
        answer *= int(torch.equal(mine, of_rank_0))
    dist.all_reduce(answer, dist.ReduceOp.MIN)
    return bool(answer)


def smallest_is_largest(model):
    raw = [
        t.detach().contiguous().reshape(-1).view(torch.uint8)
        for t in (*model.parameters(), *model.buffers())
    ]
    low = torch.cat(raw)
    high = low.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return torch.equal(low, high)


WRONG = """
== solution
of_numbers, nan-differs: torch.equal compares numbers, and a NaN equals nothing
~ .reshape(-1).view(torch.uint8) =>
== compared_with_rank_0
leaves_at_once, not-everybody: whoever finds a difference leaves with its answer; the others go on
~ answer *= int(torch.equal(mine, of_rank_0)) => if not torch.equal(mine, of_rank_0): return False
parameters_alone, only-another-buffer: buffers are forgotten
~ (*model.parameters(), *model.buffers()) => model.parameters()
== by_digest
asks_nobody, nothing-sent: the seeds are equal, so the models are, one hopes
~ dist.all_gather_object(every, digest.hexdigest()) => every = [1]
"""
