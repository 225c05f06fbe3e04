"""Answers to ring_attention."""

import torch
import torch.distributed as dist
from torch import Tensor


def three_messages(q, k, v, where):
    rank, n = dist.get_rank(), dist.get_world_size()
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(n)]
    dist.all_gather(lengths, torch.tensor([len(k)]))
    out, log_sum, places = torch.zeros_like(q), q.new_full((len(q),), -torch.inf), where
    for step in range(n):
        scores = q @ k.t() * q.shape[1] ** -0.5
        scores = scores.masked_fill(places[None] > where[:, None], -torch.inf)
        own_sum = scores.logsumexp(1)
        weights = torch.where(own_sum.isneginf()[:, None], 0, (scores - own_sum[:, None]).exp())
        both = torch.logaddexp(log_sum, own_sum)
        old, new = ((part - both).exp()[:, None] for part in (log_sum, own_sum))
        out = torch.where(old > 0, out * old, 0) + torch.where(new > 0, new * (weights @ v), 0)
        log_sum = both
        if step < n - 1:
            length, right, left = (
                int(lengths[(rank + step + 1) % n]),
                (rank + 1) % n,
                (rank - 1) % n,
            )
            mine = [k.contiguous(), v.contiguous(), places]
            coming = [t.new_empty(length, *t.shape[1:]) for t in mine]
            works = [dist.isend(t, left) for t in mine]
            works += [dist.irecv(t, right) for t in coming]
            for work in works:
                work.wait()
            k, v, places = coming
    return out


def padded(q, k, v, where):
    """Every block is as long as the longest."""
    rank, n, d = dist.get_rank(), dist.get_world_size(), q.shape[1]
    most = torch.tensor([len(k)])
    dist.all_reduce(most, dist.ReduceOp.MAX)
    never = torch.iinfo(torch.int32).max
    block = torch.cat([k, v, where[:, None].to(k.dtype)], 1)
    block = torch.nn.functional.pad(block, (0, 0, 0, int(most) - len(k)), value=never)
    top = q.new_full((len(q), 1), torch.finfo(q.dtype).min)
    total, out = q.new_zeros(len(q), 1), torch.zeros_like(q)
    for step in range(n):
        works = []
        if step < n - 1:
            coming = torch.empty_like(block)
            works = [dist.isend(block, (rank + 1) % n), dist.irecv(coming, (rank - 1) % n)]
        hidden = block[:, -1] > where[:, None]
        scores = (q @ block[:, :d].t() / d**0.5).masked_fill(hidden, torch.finfo(q.dtype).min)
        new = torch.maximum(top, scores.amax(1, keepdim=True))
        powers, shrink = (scores - new).exp().masked_fill(hidden, 0), (top - new).exp()
        total = total * shrink + powers.sum(1, keepdim=True)
        out, top = out * shrink + powers @ block[:, d : 2 * d], new
        for work in works:
            work.wait()
        block = coming if works else block
    return out / total


WRONG = """
== solution
places_stay, own-places: k and v travel, and where does not
~ hidden = block[:, -1] > where[:, None] => hidden = where > where[:, None]
kept, blocks-kept: what came is kept, one may need it
-     for step in range(n):
+     kept = []
+     for step in range(n):
+         kept.append(block)
not_low_enough, only-far-below-zero: a large number, one thinks
~ masked_fill(hidden, -torch.inf) => masked_fill(hidden, -1e4)
one_neighbour, not-met: on a ring one has a neighbour, and talks to it
~ dist.irecv, coming, (rank - 1) % n => dist.irecv, coming, (rank + 1) % n
== three_messages
one_too_many, comes-home: the last block is sent home
~         if step < n - 1: =>         if n > 1:
equal_lengths, only-uneven: all blocks are as long as one's own
~ int(lengths[(rank + step + 1) % n]) => len(q)
"""
