"""Answers to exchange_edges."""

import torch
import torch.distributed as dist


def in_a_batch(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return x[-1].clone(), x[0].clone()
    left, right = (rank - 1) % n, (rank + 1) % n
    from_left, from_right = torch.empty_like(x[0]), torch.empty_like(x[0])
    ops = [
        dist.P2POp(dist.isend, x[0].contiguous(), left),
        dist.P2POp(dist.isend, x[-1].contiguous(), right),
        dist.P2POp(dist.irecv, from_right, right),
        dist.P2POp(dist.irecv, from_left, left),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return from_left, from_right


def in_two_batches(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    out = []
    for mine, to, source in (x[-1], rank + 1, rank - 1), (x[0], rank - 1, rank + 1):
        inbox = mine.clone()
        if n > 1:
            ops = [dist.P2POp(dist.irecv, inbox, source % n)]
            ops.append(dist.P2POp(dist.isend, mine.contiguous(), to % n))
            [work.wait() for work in dist.batch_isend_irecv(ops)]
        out.append(inbox)
    return tuple(out)


WRONG = """
== in_a_batch
unbatched, unbatched: right on gloo; hangs on NCCL (NVIDIA/nccl#1192)
~ dist.batch_isend_irecv(ops) => [op.op(op.tensor, op.peer) for op in ops]
order_of_receives, order-of-receives: left before right; with three ranks it is right
~ (dist.irecv, from_right, right) => (dist.irecv, a, left)
~ (dist.irecv, from_left, left) => (dist.irecv, from_right, right)
~ (dist.irecv, a, left) => (dist.irecv, from_left, left)
tags, tags: tags tell the two edges apart, as on gloo
~ x[0].contiguous(), left) => x[0].contiguous(), left, tag=1)
~ x[-1].contiguous(), right) => x[-1].contiguous(), right, tag=2)
~ (dist.irecv, from_right, right) => (dist.irecv, a, left, tag=2)
~ (dist.irecv, from_left, left) => (dist.irecv, from_right, right, tag=1)
~ (dist.irecv, a, left, tag=2) => (dist.irecv, from_left, left, tag=2)
last_work, order-of-gloo: right on NCCL, where the calls of a group run in order
-     for work in dist.batch_isend_irecv(ops):
-         work.wait()
+     dist.batch_isend_irecv(ops)[-1].wait()
swapped, swapped: the two are returned the other way round
~ return from_left, from_right => return from_right, from_left
edges_to_the_wrong_side, far-edges: right with two ranks, by chance
~ x[0].contiguous(), left => x[0].contiguous(), right
-         dist.P2POp(dist.isend, x[-1].contiguous(), right)
+         dist.P2POp(dist.isend, x[-1].contiguous(), left)
== in_two_batches
slices, shape: rows are cut as slices
~ (x[-1], rank + 1, rank - 1), (x[0], => (x[-1:], rank + 1, rank - 1), (x[:1],
"""
