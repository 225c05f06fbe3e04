"""Answers to my_reduce."""

import torch
import torch.distributed as dist


def flat(tensor, dst, op):
    rank, n = dist.get_rank(), dist.get_world_size()
    outbox = tensor.contiguous()
    if rank != dst:
        dist.send(outbox, dst)
        return
    combine = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]
    inbox = torch.empty_like(outbox)
    for other in range(n):
        if other != dst:
            dist.recv(inbox, other)
            tensor.copy_(combine(tensor, inbox))


def all_first(tensor, dst, op):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.isend(tensor.contiguous(), dst).wait()
        return
    pile = torch.empty((n, *tensor.shape), dtype=tensor.dtype)
    pile[dst] = tensor
    for other in range(n):
        if other != dst:
            dist.recv(pile[other], other)
    how = {"sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin}[op]
    tensor.copy_(how(pile, 0))


def chain(tensor, dst, op):
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - dst - 1) % n
    mine = tensor.clone(memory_format=torch.contiguous_format)
    if place > 0:
        inbox = torch.empty_like(mine)
        dist.recv(inbox, (rank - 1) % n)
        if op in ("sum", "prod"):
            mine = mine + inbox if op == "sum" else mine * inbox
        else:
            mine = torch.max(mine, inbox) if op == "max" else torch.min(mine, inbox)
    if rank == dst:
        tensor.copy_(mine)
    else:
        dist.send(mine, (rank + 1) % n)


WRONG = """
== chain
in_place, changes-argument: the total grows in the caller's tensors
~ tensor.clone(memory_format=torch.contiguous_format) => tensor.contiguous()
~ mine = mine + inbox if op => mine = mine.add_(inbox) if op
== all_first
from_zeros, starts-from-0: a sum starts from 0, and so everything does
~ torch.empty((n, => torch.zeros((n + 1,
not_its_own, one-lost: dst has no message from itself
~     tensor.copy_(how(pile, 0) =>     tensor.copy_(how(torch.cat([pile[:dst], pile[dst + 1 :]]), 0)
== flat
rebinds, left-unwritten: a name is given another tensor
~ tensor.copy_(combine(tensor, inbox)) => tensor = combine(tensor, inbox)
pythons_max, one-truth-value: Python has a max and a min
~ "max": torch.maximum, "min": torch.minimum => "max": max, "min": min
adds, other-op: op is forgotten
- "prod": torch.mul, "max": torch.maximum, "min": torch.minimum
+ "prod": torch.add, "max": torch.add, "min": torch.add
"""
