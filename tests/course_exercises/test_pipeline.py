"""Lesson 15's right answers beside one process, in time, and torch's own pipelines."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.config as settings
import zoo
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from course_exercises.drivers.driven import BACKWARD, FORWARD
from course_exercises.drivers.staged import Stage
from course_lib import Network, compute, run, simulate

ENGINES = {"run": run, "simulate": simulate, "nccl": partial(simulate, backend="nccl")}
FREE = Network(latency=1e-12, bandwidth=1e24)
SHAPE = (2, 4)
EXERCISES = ("pipeline_step", "one_f_one_b")


def answer(exercise: str) -> Any:
    names: dict[str, Any] = {}
    exec(next(iter(zoo.right(exercise).values())), names)
    return names[exercise]


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
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("exercise", EXERCISES)
def test_an_answer_leaves_the_gradients_of_one_process(exercise: str, engine: str) -> None:
    n, m = 3, 5
    whole, (inputs, targets) = network(n).double(), batches(m)
    losses = [mse_loss(whole(x.double()), t) for x, t in zip(inputs, targets, strict=True)]
    (sum(losses) / m).backward()  # type: ignore[union-attr]
    results = ENGINES[engine](step, answer(exercise), m, world_size=n).results
    ours = [gradient for _, gradients, _ in results for gradient in gradients]
    for gradient, p in zip(ours, whole.parameters(), strict=True):
        assert torch.allclose(gradient.double(), p.grad, rtol=1e-5, atol=1e-7)
    assert [loss for loss, *_ in results[:-1]] == [None] * (n - 1)
    assert results[-1][0] == pytest.approx(sum(losses).item() / m)  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "launches"), [("simulate", 0), ("nccl", 5e-6)])
@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_step_takes_what_the_formula_says_and_1f1b_holds_less(
    exercise: str, engine: str, launches: float
) -> None:
    function = answer(exercise)
    for n, m in ((1, 1), (1, 4), (2, 1), (2, 8), (3, 2), (4, 4), (5, 16), (8, 3)):
        job = ENGINES[engine](step, function, m, world_size=n, network=FREE)
        at_most = 1e-9 + launches * 2 * (m + n)
        assert job.seconds == pytest.approx((m + n - 1) * (FORWARD + BACKWARD), abs=at_most)
        most = [m if exercise == "pipeline_step" else min(m, n - rank) for rank in range(n)]
        assert [alive for *_, alive in job.results] == most


class Chunk(nn.Sequential):
    """Half a stage."""

    def forward(self, x: Tensor) -> Tensor:
        compute(FORWARD / 2)
        y = super().forward(x)
        y.register_hook(lambda gradient: compute(BACKWARD / 2))
        return y


def interleaved(per_edge: bool) -> None:
    from torch.distributed import pipelining

    logging.getLogger("torch.distributed.pipelining").setLevel(logging.ERROR)
    settings.pipeline_per_edge_p2p = per_edge  # type: ignore[assignment]
    rank, n = dist.get_rank(), dist.get_world_size()
    stages: list[Any] = [
        pipelining.PipelineStage(
            Chunk(nn.Linear(4, 4)),
            k,
            2 * n,
            torch.device("cpu"),
            input_args=(torch.zeros(SHAPE, requires_grad=k > 0),),
            output_args=(torch.zeros(SHAPE, requires_grad=True),),
        )
        for k in (rank, rank + n)
    ]
    schedule = pipelining.ScheduleInterleaved1F1B(stages, 8, mse_loss)
    inputs, targets = (torch.cat(tensors) for tensors in batches(8))
    schedule.step(*[inputs] * (rank == 0), **({"target": targets} if rank == n - 1 else {}))


@pytest.mark.slow
def test_torchs_pipelines_have_a_communicator_for_each_pair_where_they_ask_for_it() -> None:
    """With one for all, an interleaved schedule is slower than a plain one on modelled GPUs."""
    times = {
        (backend, per_edge): simulate(
            interleaved, per_edge, world_size=4, network=FREE, backend=backend
        ).seconds
        for backend in ("gloo", "nccl")
        for per_edge in (False, True)
    }
    assert times["gloo", True] == pytest.approx(28.5e-3, rel=1e-3)
    assert times["nccl", True] == pytest.approx(28.5e-3, rel=2e-3)
    assert times["nccl", False] > (8 + 4 - 1) * (FORWARD + BACKWARD)
