"""Answers to all_reduce_seconds."""

import time

import torch
import torch.distributed as dist

from course_lib import device


def with_events(x, repeats):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier()
    start.record()
    for _ in range(repeats):
        dist.all_reduce(x)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / repeats


def barrier_stops_the_host(x, repeats):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(x)
    dist.barrier()
    return (time.perf_counter() - start) / repeats


WRONG = """
== solution
synchronizes_each, host-waits: to be sure that each has ended
-         dist.all_reduce(x)
+         dist.all_reduce(x)
+         torch.get_device_module(x.device).synchronize()
warms_up_for_one, repeats: the second call is the fast one
~ range(repeats) => range(1)
~  / repeats =>
== with_events
once, repeats: one call is timed: nothing seems to be gained by more
~ range(repeats) => range(1)
~  / repeats =>
no_barrier, others-are-late: my GPU is idle, so all are
~     dist.barrier() =>
asks_too_early, events: two at once: events are read before they have happened, and nothing is
divided
~     torch.cuda.synchronize() =>
~  / repeats =>
"""
