"""Answers to tree_broadcast."""

import torch
import torch.distributed as dist


def halving(tensor, src):
    rank, n = dist.get_rank(), dist.get_world_size()
    box = tensor.clone(memory_format=torch.contiguous_format)
    first, last = 0, n  # the places that somebody at `first` has to tell
    me = (rank - src) % n
    while last - first > 1:
        middle = (first + last + 1) // 2
        if me == first:
            dist.send(box, (middle + src) % n)
        elif me == middle:
            dist.recv(box, (first + src) % n)
        first, last = (first, middle) if me < middle else (middle, last)
    tensor.copy_(box)


def by_bits(tensor, src):
    rank, n = dist.get_rank(), dist.get_world_size()
    me, bit, works = rank - src if rank >= src else rank - src + n, 1, []
    box = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
    while me and bit * 2 <= me:
        bit *= 2
    if me:
        dist.recv(box, (me - bit + src) % n)
        bit *= 2
    while me + bit < n:
        works.append(dist.isend(box, (me + bit + src) % n))
        bit *= 2
    for work in works:
        work.wait()
    tensor.copy_(box)


WRONG = """
== solution
powers_of_two, only-no-power-of-two: the tree is right for 2, 4 and 8 ranks; a broadcast of Open MPI
was wrong for all others: open-mpi/ompi#7523
~  and place + have < n =>
root_0, only-src: tried with src 0 only
~ (rank - src) % n, 1 => rank, 1
star, star: it is right, and short
-     while have < n:
+     if rank == src:
+         for other in range(n):
+             if other != src:
+                 dist.send(box, other)
+     else:
+         dist.recv(box, src)
+     while False:
five_rounds, only-more-than-32-ranks: rounds written down, as in ROUNDS
~ while have < n: => for have in (1, 2, 4, 8, 16):
~         have *= 2 =>
== halving
unequal_halves, over-budget: the root keeps the larger part, and sends too often
          middle = (first + last + 1) // 2
+         if n > 5:
+             middle = last - max(1, (last - first) // 3)
root_0_and_adds, adds: two at once: added, and the root is not src
~ tensor.copy_(box) => tensor.add_(box if me else 0)
~ me = (rank - src) % n => me = rank % n; src = 0
"""
