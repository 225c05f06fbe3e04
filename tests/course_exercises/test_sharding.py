"""Lesson 13's own answers beside torch's, and its memory and time beside formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_lib import Network, compute, run, simulate
from course_sim.costs import textbook_seconds
from course_staff.authoring.source import read_lesson

LESSON = Path(__file__).parents[2] / "notebooks" / "src" / "13_sharding.py"
NAMES: dict[str, Any] = {
    "torch": torch,
    "dist": dist,
    "nn": nn,
    "Tensor": Tensor,
    "compute": compute,
}
for answer in read_lesson(LESSON).answers:
    exec(answer.solved, NAMES)


def trained(is_sharded: bool) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 3))
    options = {"lr": 1e-2, "weight_decay": 0.1, "amsgrad": True}
    optimizer = (
        NAMES["ShardedOptimizer"](model.parameters(), torch.optim.AdamW, **options)
        if is_sharded
        else torch.optim.AdamW(model.parameters(), **options)
    )
    source = torch.Generator().manual_seed(5 + dist.get_rank())
    for _ in range(10):
        model(torch.randn(4, 7, generator=source)).square().sum().backward()
        for p in model.parameters() if not is_sharded else ():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


@pytest.mark.slow
def test_the_sharded_optimizer_trains_as_adamw_does() -> None:
    sharded, whole = (run(trained, way, world_size=3).results for way in (True, False))
    for parameters in sharded:
        torch.testing.assert_close(parameters, whole[0], rtol=1e-5, atol=1e-6)


LENGTHS, SECONDS = (2500, 2000, 3000, 1500, 2500, 700), (1e-3, 2e-3, 5e-4, 1e-3, 3e-4, 2e-3)


def ahead() -> None:
    layers = [torch.ones(length) for length in LENGTHS]
    NAMES["prefetched"](list(zip(SECONDS, layers, strict=True)))


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
