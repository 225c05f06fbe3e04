"""Answers to pass_right."""

import torch
import torch.distributed as dist


def by_parity(mine):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return mine.clone()
    inbox = torch.empty_like(mine, memory_format=torch.contiguous_format)
    if rank % 2 == 0:
        dist.send(mine.contiguous(), (rank + 1) % n)
        dist.recv(inbox, (rank - 1) % n)  # from the left
    else:
        dist.recv(inbox, (rank - 1) % n)
        dist.send(mine.contiguous(), (rank + 1) % n)  # to the right
    return inbox


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


EVEN = "rank % 2 == 0"
LEFT = "coming = dist.irecv(inbox, (rank - 1) % n)"
RIGHT = "dist.send(mine.contiguous(), (rank + 1) % n)\n    coming"
WRONG = {
    "send_first": ("by_parity", "01.send-first", "the sentence that describes it (nccl#479)",
                   (EVEN, "True")),
    "receive_first": ("by_parity", "01.receive-first", "good manners", (EVEN, "False")),
    "past_the_end": ("posted_first", "01.no-such-rank", "the ring is not closed",
                     (RIGHT, "dist.send(mine.contiguous(), rank + 1)\n    coming")),
    "other_way": ("posted_first", "01.passes-left", "left and right are swapped",
                  (LEFT, "coming = dist.irecv(inbox, (rank + 1) % n)"),
                  (RIGHT, "dist.send(mine.contiguous(), (rank - 1) % n)\n    coming")),
    "never_waits": ("posted_first", "01.read-before-wait", "irecv is taken for recv",
                    ("    coming.wait()\n", "")),
    "alone": ("by_parity", "01.talks-to-itself", "one rank is its own neighbour",
              ("n == 1", "n == 0")),
    "strided": ("by_parity", "01.strided", "empty_like keeps the strides",
                (", memory_format=torch.contiguous_format", "")),
    "into_mine": ("one_breaks_the_ring", "01.changes-argument", "what was sent is not needed again",
                  ("inbox = outbox.clone()", "inbox = mine")),
    "own_and_alone": ("by_parity", "01.returns-own", "two at once: the wrong tensor, and nobody "
                      "thought of one rank", ("return inbox", "return mine.clone()"),
                      ("n == 1", "n == 0")),
    "a_dimension_more": ("one_breaks_the_ring", "01.shape", "a row is taken for a matrix",
                         ("return inbox", "return inbox[None]")),
}  # fmt: skip
