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


SYNC = "    module.synchronize()\n"
WRONG = {
    "no_synchronize": ("with_a_stopwatch", "07.only-the-launch", "one times GPU code as one times "
                       "Python", (SYNC + "    return", "    return")),
    "synchronizes_each": ("with_a_stopwatch", "07.host-waits", "to be sure that each has ended",
                          ("all_reduce(x)\n", "all_reduce(x)\n        module.synchronize()\n")),
    "once": ("with_a_stopwatch", "07.repeats", "one call is timed: nothing seems to be gained by "
             "more", ("range(repeats)", "range(1)"), (" / repeats", "")),
    "synchronizes_only_after": ("with_a_stopwatch", "07.starts-too-early", "the stopwatch starts "
                                "while the GPU is still busy",
                                ("    dist.barrier()\n" + SYNC, "")),
    "no_barrier": ("with_a_stopwatch", "07.others-are-late", "my GPU is idle, so all are",
                   ("    dist.barrier()\n", "")),
    "milliseconds": ("with_events", "07.unit", "elapsed_time answers in milliseconds",
                     (" / 1e3", "")),
    "not_divided": ("with_a_stopwatch", "07.not-divided", "the mean is forgotten",
                    (" / repeats", "")),
    "asks_too_early": ("with_events", "07.events", "two at once: events are read before they have "
                       "happened, and nothing is divided",
                       ("    torch.cuda.synchronize()\n", ""), (" / repeats", "")),
    "warm_up_is_timed": ("with_a_stopwatch", "07.warm-up", "the stopwatch starts before the call "
                         "that warms up", ("range(repeats)", "range(repeats + 1)")),
}  # fmt: skip
