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


SEND_RIGHT = "dist.P2POp(dist.isend, x[-1].contiguous(), right)"
WRONG = {
    "unbatched": ("in_a_batch", "07.unbatched", "right on gloo; hangs on NCCL (NVIDIA/nccl#1192)",
                  ("dist.batch_isend_irecv(ops)", "[op.op(op.tensor, op.peer) for op in ops]")),
    "order_of_receives": ("in_a_batch", "07.order-of-receives", "left before right; with three "
                          "ranks it is right",
                          ("(dist.irecv, from_right, right)", "(dist.irecv, a, left)"),
                          ("(dist.irecv, from_left, left)", "(dist.irecv, from_right, right)"),
                          ("(dist.irecv, a, left)", "(dist.irecv, from_left, left)")),
    "tags": ("in_a_batch", "07.tags", "tags tell the two edges apart, as on gloo",
             ("x[0].contiguous(), left)", "x[0].contiguous(), left, tag=1)"),
             ("x[-1].contiguous(), right)", "x[-1].contiguous(), right, tag=2)"),
             ("(dist.irecv, from_right, right)", "(dist.irecv, a, left, tag=2)"),
             ("(dist.irecv, from_left, left)", "(dist.irecv, from_right, right, tag=1)"),
             ("(dist.irecv, a, left, tag=2)", "(dist.irecv, from_left, left, tag=2)")),
    "reads_before_wait": ("in_a_batch", "07.read-before-wait", "pytorch#68866",
                          ("    for work in dist.batch_isend_irecv(ops):\n        work.wait()\n    "
                           "return from_left, from_right",
                           "    works = dist.batch_isend_irecv(ops)\n    out = from_left.clone(), "
                           "from_right.clone()\n    [w.wait() for w in works]\n    return out")),
    "waits_for_two": ("in_a_batch", "07.never-waited", "a Work for each message, as gloo gives; "
                      "NCCL gives one for the batch",
                      ("    for work in dist.batch_isend_irecv(ops):\n        work.wait()\n",
                       "    works = dist.batch_isend_irecv(ops)\n    works[2].wait()\n    "
                       "works[3].wait()\n")),
    "last_work": ("in_a_batch", "07.order-of-gloo", "right on NCCL, where the calls of a group run "
                  "in order",
                  ("    for work in dist.batch_isend_irecv(ops):\n        work.wait()\n",
                   "    dist.batch_isend_irecv(ops)[-1].wait()\n")),
    "whole_blocks": ("in_a_batch", "07.whole-block", "the rows are chosen after they have come",
                     ("x[0].contiguous(), left", "x.contiguous(), left"),
                     (SEND_RIGHT, SEND_RIGHT.replace("x[-1]", "x")),
                     ("    ops = ", "    row, from_left, from_right = from_left, torch.empty_like("
                      "x, memory_format=torch.contiguous_format), torch.empty_like(x, "
                      "memory_format=torch.contiguous_format)\n    ops = "),
                     ("return from_left, from_right", "return from_left[-1].clone(), "
                      "from_right[0].clone()")),
    "swapped": ("in_a_batch", "07.swapped", "the two are returned the other way round",
                ("return from_left, from_right", "return from_right, from_left")),
    "edges_to_the_wrong_side": ("in_a_batch", "07.far-edges", "right with two ranks, by chance",
                                ("x[0].contiguous(), left", "x[0].contiguous(), right"),
                                (SEND_RIGHT, SEND_RIGHT.replace("right", "left"))),
    "forgets_one_rank": ("in_a_batch", "07.talks-to-itself", "nobody tries it with one rank",
                         ("    if n == 1:\n        return x[-1].clone(), x[0].clone()\n", "")),
    "slices": ("in_two_batches", "07.shape", "rows are cut as slices",
               ("(x[-1], rank + 1, rank - 1), (x[0],", "(x[-1:], rank + 1, rank - 1), (x[:1],")),
}  # fmt: skip
