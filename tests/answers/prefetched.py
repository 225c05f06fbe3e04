"""Answers to prefetched."""

import torch
import torch.distributed as dist

from course_lib import compute


def two_ahead(layers):
    def gather(k):
        shard = layers[k][1]
        whole = shard.new_empty(dist.get_world_size() * shard.numel())
        return whole, dist.all_gather_single(whole, shard, async_op=True)

    ahead = [gather(k) for k in range(min(2, len(layers)))]
    sums = []
    for k in range(len(layers)):
        whole, work = ahead.pop(0)
        work.wait()
        compute(layers[k][0])
        sums.append(whole.sum())
        del whole, work
        if k + 2 < len(layers):
            ahead.append(gather(k + 2))
    return sums


def in_lists(layers):
    n = dist.get_world_size()
    on_the_way, out = {}, []
    for number, (seconds, _) in enumerate(layers):
        for k in (number, number + 1):
            if k < len(layers) and k not in on_the_way:
                parts = [torch.empty_like(layers[k][1]) for _ in range(n)]
                on_the_way[k] = parts, dist.all_gather(parts, layers[k][1], async_op=True)
        parts, work = on_the_way[number]
        work.wait()
        compute(seconds)
        out.append(torch.stack([part.sum() for part in parts]).sum())
        on_the_way[number] = parts = work = None
    return out


WRONG = """
== two_ahead
everything_first, too-early: all gathers are issued, and wait
~ min(2, len(layers)) => len(layers)
-         if k + 2 < len(layers):
-             ahead.append(gather(k + 2))
waits_at_once, one-by-one: what is started is waited for
~ min(2, len(layers)) => min(1, len(layers))
~ if k + 2 < len(layers) => if k + 1 < len(layers)
~ gather(k + 2) => gather(k + 1)
kept_in_a_list, kept: what has been gathered stays in a list
~     sums = [] =>     sums, used = [], []
~         del whole, work =>         used.append(whole)
never_waits, not-whole: computing needs no values here
-         work.wait()
-         compute(layers[k][0])
+         compute(layers[k][0])
+         work.wait()
own_shard, own-sum: the shard is at hand
~ sums.append(whole.sum()) => sums.append(layers[k][1].sum())
reads_the_sum, stands-still: a number holds no layer
~ sums.append(whole.sum()) => sums.append(torch.tensor(whole.sum().item()))
two_at_least, only-one-layer: there are many layers
~ min(2, len(layers)) => 2
in_pairs, late: two are gathered, then two are used
-         if k + 2 < len(layers):
-             ahead.append(gather(k + 2))
+         if k % 2:
+             ahead = [gather(j) for j in (k + 1, k + 2) if j < len(layers)]
"""
