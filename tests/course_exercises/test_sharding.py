"""A right answer to lesson 13's prefetching takes the time of a formula."""

from __future__ import annotations

import pytest
import torch
import zoo

from course_lib import Network, simulate
from course_sim.costs import textbook_seconds

LENGTHS, SECONDS = (2500, 2000, 3000, 1500, 2500, 700), (1e-3, 2e-3, 5e-4, 1e-3, 3e-4, 2e-3)


def ahead() -> None:
    layers = [torch.ones(length) for length in LENGTHS]
    zoo.function("prefetched")(list(zip(SECONDS, layers, strict=True)))


def test_prefetch_takes_the_time_of_the_recursion() -> None:
    network = Network(bandwidth=1e7)
    job = simulate(ahead, world_size=2, network=network, backend="nccl")
    start = job.trace.of(0)[0].issued
    gathered, computed = [start, start], [start, start]
    for length, seconds in zip(LENGTHS, SECONDS, strict=True):
        gather = textbook_seconds("all_gather", 2, 8 * length, network.latency, 1e-7)
        gathered.append(max(gathered[-1], computed[-2]) + gather)
        computed.append(max(computed[-1], gathered[-1]) + seconds)
    calls = [e.completed for e in job.trace.of(0)]
    assert calls == pytest.approx(gathered[2:], abs=1e-9)
    assert job.seconds == pytest.approx(computed[-1], abs=1e-9)
