"""Answers to recursive_doubling."""

import torch
import torch.distributed as dist


def in_pairs(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    power = 2 ** (n.bit_length() - 1)
    extra, box = n - power, tensor.contiguous()
    inbox = box.clone()
    plays = rank >= 2 * extra or rank % 2 == 1  # of the first pairs, the odd one plays for both
    if rank < 2 * extra:
        if plays:
            dist.recv(inbox, rank - 1)
            box.add_(inbox)
        else:
            dist.send(box, rank + 1)
    place = rank - extra if rank >= 2 * extra else rank // 2
    for k in reversed(range(n.bit_length() - 1)):
        if plays:
            other = place ^ (1 << k)
            peer = 2 * other + 1 if other < extra else other + extra
            ops = [dist.P2POp(dist.isend, box, peer), dist.P2POp(dist.irecv, inbox, peer)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            box.add_(inbox)
    if rank < 2 * extra:
        if plays:
            dist.send(box, rank - 1)
        else:
            dist.recv(box, rank + 1)
    if box is not tensor:
        tensor.copy_(box)


WRONG = """
== solution
nobody_tells_the_extra, not-told: the sum is done, one thinks
~         dist.recv(total, rank - power) =>
~         dist.send(total, rank + power) =>         pass
own_order, bits-differ: each rank adds what comes round to its own, in its own order:
pytorch/pytorch#129501
      inbox = torch.empty_like(total)
+     passing = total.clone()
+     for _ in range(n - 1):
+         going = dist.isend(passing, (rank + 1) % n)
+         dist.recv(inbox, (rank - 1) % n)
+         going.wait()
+         total = total + inbox
+         passing = inbox.clone()
+     tensor.copy_(total)
+     return
one_way_at_a_time, too-many-rounds: send and recv in turn, as in lesson 01
-         going = dist.isend(total, rank ^ 2**k)
-         dist.recv(inbox, rank ^ 2**k)
-         going.wait()
+         if rank & 2**k:
+             dist.send(total, rank ^ 2**k)
+         dist.recv(inbox, rank ^ 2**k)
+         if not rank & 2**k:
+             dist.send(total, rank ^ 2**k)
no_partner, no-such-rank: rank ^ distance is taken for a rank that there is
~ power = 1 << (n.bit_length() - 1) => power = n
~ range(n.bit_length() - 1 if rank < power else 0) => range((n - 1).bit_length())
sends_float64, long-message: added up in float64, and sent so
~ tensor.clone(memory_format=torch.contiguous_format) => tensor.double().contiguous()
"""
