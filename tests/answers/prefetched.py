"""Answers to prefetched."""

import torch
import torch.distributed as dist
from torch import Tensor

from course_lib import compute


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
== solution
everything_first, too-early: all gathers are issued, and wait
-     gather(0)
-     gather(1)
+     for number in range(len(layers)):
+         gather(number)
~         gather(number + 2) =>
waits_at_once, one-by-one: what is started is waited for
~     gather(1) =>
~ gather(number + 2) => gather(number + 1)
kept_in_a_list, kept: what has been gathered stays in a list
~     sums, on_the_way = [], [] =>     sums, on_the_way, used = [], [], []
~         del whole, work =>         used.append(whole)
never_waits, not-whole: computing needs no values here
-         work.wait()
-         compute(seconds)
+         compute(seconds)
+         work.wait()
own_shard, own-sum: the shard is at hand
~ sums.append(whole.sum()) => sums.append(layers[number][1].sum())
reads_the_sum, stands-still: a number holds no layer
~ sums.append(whole.sum()) => sums.append(torch.tensor(whole.sum().item()))
two_at_least, only-one-layer: there are many layers
~ if number < len(layers): => if number < max(2, len(layers)):
in_pairs, late: two are gathered, then two are used
-         gather(number + 2)
+         if number % 2:
+             gather(number + 1)
+             gather(number + 2)
"""
