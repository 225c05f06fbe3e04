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


def tree(tensor, dst, op):
    rank, n = dist.get_rank(), dist.get_world_size()
    combine = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]
    place, distance = (rank - dst) % n, 1
    total = tensor.contiguous().clone()
    while distance < n:
        if place & distance:
            dist.send(total, (place - distance + dst) % n)
            return
        if place + distance < n:
            inbox = torch.empty_like(total)
            dist.recv(inbox, (place + distance + dst) % n)
            total = combine(total, inbox)
        distance *= 2
    tensor.copy_(total)


CLONE = "tensor.clone(memory_format=torch.contiguous_format)"
BACK = "    tensor.copy_(how(pile, 0)"
WRONG = {
    "in_place": ("chain", "02.changes-argument", "the total grows in the caller's tensors",
                 (CLONE, "tensor.contiguous()"),
                 ("mine = mine + inbox if op", "mine = mine.add_(inbox) if op")),
    "from_zeros": ("all_first", "02.starts-from-0", "a sum starts from 0, and so everything does",
                   ("torch.empty((n, ", "torch.zeros((n + 1, ")),
    "not_its_own": ("all_first", "02.one-lost", "dst has no message from itself",
                    (BACK, "    tensor.copy_(how(torch.cat([pile[:dst], pile[dst + 1 :]]), 0)")),
    "while_sent": ("chain", "02.written-before-wait", "the send is still under way when the tensor "
                   "is cleared for the next round",
                   ("        dist.send(mine, (rank + 1) % n)",
                    "        going = dist.isend(mine, (rank + 1) % n)\n        mine.zero_()\n"
                    "        going.wait()")),
    "strided": ("flat", "02.strided", "the tensor is sent as it lies",
                ("outbox = tensor.contiguous()", "outbox = tensor")),
    "powers_of_two": ("tree", "02.only-no-power-of-two", "the tree is right for 2, 4 and 8 ranks",
                      ("if place + distance < n:", "if True:")),
    "rebinds": ("flat", "02.left-unwritten", "a name is given another tensor",
                ("tensor.copy_(combine(tensor, inbox))", "tensor = combine(tensor, inbox)")),
    "pythons_max": ("flat", "02.one-truth-value", "Python has a max and a min",
                    ('"max": torch.maximum, "min": torch.minimum', '"max": max, "min": min')),
    "total_is_inbox": ("flat", "02.received-over-own", "the result so far is the inbox",
                       ("inbox = torch.empty_like(outbox)", "inbox = tensor")),
    "adds": ("flat", "02.other-op", "op is forgotten",
             ('"prod": torch.mul, "max": torch.maximum, "min": torch.minimum',
              '"prod": torch.add, "max": torch.add, "min": torch.add')),
}  # fmt: skip
