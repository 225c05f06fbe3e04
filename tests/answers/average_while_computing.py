"""Answers to average_while_computing."""

import torch.distributed as dist

from course_lib import compute


def divides_before(layers):
    works = []
    for seconds, gradient in layers:
        compute(seconds)
        gradient.div_(dist.get_world_size())
        works.append(dist.all_reduce(gradient, async_op=True))
    for work in works:
        work.wait()


def with_avg(layers):
    works = []
    for seconds, gradient in layers:
        compute(seconds)
        works.append(dist.all_reduce(gradient, op=dist.ReduceOp.AVG, async_op=True))
    [work.wait() for work in works]


WRONG = """
== solution
divides_before_wait, written-before-wait: the order of two lines (NERSC/sc24-dl-tutorial#1)
-         work.wait()
-         gradient /= dist.get_world_size()
+         gradient /= dist.get_world_size()
+         work.wait()
sum, sum: the division is forgotten
~         gradient /= dist.get_world_size() =>
== divides_before
not_async, one-by-one: all_reduce returns at once on a GPU, so it is asynchronous, one thinks
(pytorch#27806)
~ works.append(dist.all_reduce(gradient, async_op=True)) => dist.all_reduce(gradient)
-     for work in works:
-         work.wait()
== with_avg
after_all_computing, after-computing: first compute, then communicate
~         compute(seconds) =>
      works = []
+     for seconds, _ in layers:
+         compute(seconds)
logs_each_layer, host-stands: a number of each layer for the log
          compute(seconds)
+         gradient.norm().item()
never_waits, never-waited: the numbers were right when one looked
~     [work.wait() for work in works] =>
"""
