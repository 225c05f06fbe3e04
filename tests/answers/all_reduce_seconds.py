"""Answers to all_reduce_seconds."""

import time

import torch
import torch.distributed as dist

from course_lib import device


def with_a_stopwatch(x, repeats):
    module = torch.get_device_module(device())
    dist.barrier()
    module.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(x)
    module.synchronize()
    return (time.perf_counter() - start) / repeats


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


def all_in_flight(x, repeats):
    dist.all_reduce(x)  # to warm up
    dist.barrier()
    torch.cuda.synchronize()
    start = time.perf_counter()
    works = [dist.all_reduce(x, async_op=True) for _ in range(repeats)]
    works[-1].wait()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


WRONG = """
== with_a_stopwatch
no_synchronize, only-the-launch: one times GPU code as one times Python
-     module.synchronize()
-     return
+     return
synchronizes_each, host-waits: to be sure that each has ended
  all_reduce(x)
+         module.synchronize()
once, repeats: one call is timed: nothing seems to be gained by more
~ range(repeats) => range(1)
~  / repeats =>
synchronizes_only_after, starts-too-early: the stopwatch starts while the GPU is still busy
-     dist.barrier()
-     module.synchronize()
no_barrier, others-are-late: my GPU is idle, so all are
~     dist.barrier() =>
== with_events
milliseconds, unit: elapsed_time answers in milliseconds
~  / 1e3 =>
asks_too_early, events: two at once: events are read before they have happened, and nothing is
divided
~     torch.cuda.synchronize() =>
~  / repeats =>
"""
