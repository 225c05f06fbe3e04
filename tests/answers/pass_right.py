"""Answers to pass_right."""

import torch
import torch.distributed as dist


def posted_first(mine):
    rank, n = dist.get_rank(), dist.get_world_size()
    inbox = torch.zeros(mine.shape, dtype=mine.dtype)
    if n == 1:
        return inbox.copy_(mine)
    coming = dist.irecv(inbox, (rank - 1) % n)
    dist.send(mine.contiguous(), (rank + 1) % n)
    coming.wait()
    return inbox


def one_breaks_the_ring(mine):
    n, r = dist.get_world_size(), dist.get_rank()
    outbox = mine.clone(memory_format=torch.contiguous_format)
    inbox = outbox.clone()
    if r == 0 < n - 1:
        dist.send(outbox, 1)
    if n > 1:
        dist.recv(inbox)
    if r > 0:
        dist.send(outbox, (r + 1) % n)
    return inbox


WRONG = """
== solution
send_first, send-first: the sentence that describes it (nccl#479)
~ rank % 2 == 0 => True
receive_first, receive-first: good manners
~ rank % 2 == 0 => False
alone, talks-to-itself: one rank is its own neighbour
~ n == 1 => n == 0
own_and_alone, returns-own: two at once: the wrong tensor, and nobody thought of one rank
-         step()
-     return inbox
+         step()
+     return mine.clone()
~ n == 1 => n == 0
== posted_first
past_the_end, no-such-rank: the ring is not closed
~ dist.send(mine.contiguous(), (rank + 1) % n) => dist.send(mine.contiguous(), rank + 1)
never_waits, read-before-wait: irecv is taken for recv
~     coming.wait() =>
== one_breaks_the_ring
into_mine, changes-argument: what was sent is not needed again
~ inbox = outbox.clone() => inbox = mine
"""
