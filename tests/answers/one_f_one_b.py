"""Answers to one_f_one_b."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn


def by_list(stage, inputs, targets, m, shape, loss):
    rank, n = dist.get_rank(), dist.get_world_size()
    warm_up = min(m, n - rank)
    order = "F" * warm_up + "BF" * (m - warm_up) + "B" * warm_up
    kept, losses, sent = [], [], []
    outbox = None  # what the next receive from that neighbour takes along
    forwards = backwards = 0

    def swap(peer, gives, takes):
        nonlocal outbox
        inbox, ops = torch.empty(shape), []
        if gives and outbox is not None and outbox[1] == peer:
            ops.append(dist.P2POp(dist.isend, outbox[0], peer))
            outbox = None
        if takes:
            ops.append(dist.P2POp(dist.irecv, inbox, peer))
        works = dist.batch_isend_irecv(ops) if ops else []
        if takes:
            [work.wait() for work in works]
        else:
            sent.extend(works)
        return inbox

    for what, following in zip(order, order[1:] + " ", strict=True):
        if what == "F":
            x = inputs[forwards] if rank == 0 else swap(rank - 1, True, True).requires_grad_()
            y = stage(x)
            if rank == n - 1:
                losses.append(loss(y, targets[forwards]))
                y = losses[-1] / m
            else:
                outbox = y.detach(), rank + 1
                if following != "B":
                    swap(rank + 1, True, False)
            kept.append((x, y))
            forwards += 1
        else:
            g = swap(rank + 1, True, True) if rank < n - 1 else None
            x, y = kept[backwards]
            kept[backwards] = None
            y.backward(g)
            if rank:
                outbox = x.grad, rank - 1
                if following != "F":
                    swap(rank - 1, True, False)
            backwards += 1
    [work.wait() for work in sent]
    return torch.stack(losses).mean().item() if losses else None


WRONG = """
== solution
both_send, both-send: send and recv are the calls that one knows (pytorch#172668)
-         works = dist.batch_isend_irecv(ops) if ops else []
+         works = []
+         [op.op(op.tensor, op.peer).wait() for op in ops]
unbatched, unbatched: right on gloo; hangs on NCCL (PiPPy#1088, Megatron-LM#5240)
-         works = dist.batch_isend_irecv(ops) if ops else []
+         works = [op.op(op.tensor, op.peer) for op in ops]
warm_up_beyond_m, few-micro-batches: nobody tries few micro-batches (torchtitan#775)
~ warm_up = min(m, n - 1 - rank) => warm_up = n - 1 - rank
last_forgotten, waits-for-more: the warm-up counts from 0, the cool-down from 1
~     for _ in range(warm_up): =>     for _ in range(1, warm_up):
newest, crossed: a list is a stack
~ kept.pop(0) => kept.pop()
asks_once_more, deadlock: each round of the middle is like the others
~ receives=i < m - 1 => receives=True
== by_list
gpipe, gpipe: all forwards, then all backwards: GPipe under another name
~ warm_up = min(m, n - rank) => warm_up = m
one_too_many, holds-more: n − rank, and one to be on the safe side
~ warm_up = min(m, n - rank) => warm_up = min(m, n - rank + 1)
one_too_few, slow: the warm-up is counted from the next stage
~ warm_up = min(m, n - rank) => warm_up = min(m, max(1, n - rank - 1))
"""
