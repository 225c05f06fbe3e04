"""Lesson 15's right answers beside one process, and in time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
import zoo
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from course_exercises.drivers.driven import BACKWARD, FORWARD
from course_exercises.drivers.staged import Stage
from course_lib import Network, simulate

FREE = Network(latency=1e-12, bandwidth=1e24)
SHAPE = (2, 4)
EXERCISES = ("pipeline_step", "one_f_one_b")


def network(n: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(n)))


def batches(m: int) -> tuple[list[Tensor], list[Tensor]]:
    torch.manual_seed(1)
    inputs, targets = torch.randn(2, m, *SHAPE).unbind()
    return [*inputs], [*targets]


def step(function: Any, m: int) -> tuple[float | None, list[Tensor], int]:
    """What a rank returns, its gradients, and the most micro-batches alive."""
    rank, n = dist.get_rank(), dist.get_world_size()
    stage = Stage(*network(n)[rank])
    inputs, targets = batches(m)
    own = inputs if rank == 0 else None, targets if rank == n - 1 else None
    loss = function(stage, *own, m, SHAPE, mse_loss)
    return loss, [p.grad for p in stage.parameters() if p.grad is not None], stage.most


@pytest.mark.slow
@pytest.mark.parametrize("exercise", EXERCISES)
def test_an_answer_leaves_the_gradients_of_one_process(exercise: str) -> None:
    n, m = 3, 5
    whole, (inputs, targets) = network(n).double(), batches(m)
    losses = [mse_loss(whole(x.double()), t) for x, t in zip(inputs, targets, strict=True)]
    (sum(losses) / m).backward()  # type: ignore[union-attr]
    results = simulate(step, zoo.function(exercise), m, world_size=n, backend="nccl").results
    ours = [gradient for _, gradients, _ in results for gradient in gradients]
    for gradient, p in zip(ours, whole.parameters(), strict=True):
        assert torch.allclose(gradient.double(), p.grad, rtol=1e-5, atol=1e-7)
    assert [loss for loss, *_ in results[:-1]] == [None] * (n - 1)
    assert results[-1][0] == pytest.approx(sum(losses).item() / m)  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_step_takes_what_the_formula_says_and_1f1b_holds_less(exercise: str) -> None:
    function = zoo.function(exercise)
    for n, m in ((1, 4), (2, 1), (3, 2), (4, 4), (5, 16)):
        job = simulate(step, function, m, world_size=n, network=FREE)
        assert job.seconds == pytest.approx((m + n - 1) * (FORWARD + BACKWARD), abs=1e-9)
        most = [m if exercise == "pipeline_step" else min(m, n - rank) for rank in range(n)]
        assert [alive for *_, alive in job.results] == most
