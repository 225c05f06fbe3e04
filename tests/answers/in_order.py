"""Answers to in_order."""

import torch
import torch.distributed as dist


def rank_0_calls_out(work):
    rank, n = dist.get_rank(), dist.get_world_size()
    go, done = torch.ones(1), torch.empty(0)
    if rank > 0:
        dist.recv(go, 0)
        work()
        dist.send(done, 0)
        return
    work()
    for other in range(1, n):
        dist.send(go, other)
        dist.recv(done, other)


def round_and_home(work):
    rank, n = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1, dtype=torch.int64)
    if rank > 0:
        dist.irecv(token, rank - 1).wait()
    work()
    if n > 1:
        dist.isend(token + 1, (rank + 1) % n).wait()
    if rank == 0 and n > 1:
        dist.recv(token, n - 1)


WRONG = """
== solution
nothing, nobody-told: ranks are numbered, so surely they come in that order
-     if rank > 0:
-         dist.recv(token, src=rank - 1)
+
-     if rank < n - 1:
-         dist.send(token, dst=rank + 1)
== round_and_home
nobody_left, waits-in-vain: the other end is forgotten
-     if rank == 0 and n > 1:
-         dist.recv(token, n - 1)
rank_0_works, not-everywhere: rank 0 works for all, one thinks
-     work()
+     if rank == 0:
+         work()
== rank_0_calls_out
anybody, too-early: whoever asks first has the next turn
      if rank > 0:
+         dist.send(done, 0)
-         dist.send(go, other)
-         dist.recv(done, other)
+         asks = dist.recv(done)
+         dist.send(go, asks)
+         dist.recv(done, asks)
one_for_all, one-works-for-all: the loop over ranks is taken for what one rank does
~         work() =>
      for other in range(1, n):
+         work()
"""
