"""Lesson 10's own wrapper beside DDP, and its norm beside torch's, on real ranks."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from course_exercises.catalogue import find
from course_lib import Run, run, simulate
from course_staff.authoring.source import read_lesson

LESSON = Path(__file__).parents[2] / "notebooks" / "src" / "10_mini_ddp.py"
NAMES: dict[str, Any] = {"torch": torch, "dist": dist, "nn": nn, "Tensor": Tensor}
for answer in read_lesson(LESSON).answers:
    exec(answer.solved, NAMES)
CAP = 70_000


class Net(nn.Module):
    """With a frozen layer, a weight that two layers share, and a layer that not all calls use."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(128, 128) for _ in range(3))
        self.frozen, self.some = nn.Linear(128, 128).requires_grad_(False), nn.Linear(128, 8)
        self.third.weight = self.second.weight

    def forward(self, x: Tensor, all_layers: bool) -> Tensor:
        x = self.frozen(self.third(self.second(self.first(x).relu()).relu()).relu())
        return x.sum() + (self.some(x).sum() if all_layers else 0.0)


def train(mini: bool, sometimes: bool, micro_batches: int, steps: int) -> Tensor:
    torch.manual_seed(dist.get_rank() if mini else 0)
    torch.manual_seed(0) if dist.get_rank() == 0 else None
    net = Net()
    if mini:
        wrapped = NAMES["MiniDDP"](net, CAP)
    else:
        options = {"bucket_cap_mb": CAP / 2**20, "find_unused_parameters": sometimes}
        wrapped = DistributedDataParallel(net, **options)
    sgd = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    source = torch.Generator().manual_seed(5 + dist.get_rank())
    for step in range(steps):
        sgd.zero_grad()
        for number in range(1, micro_batches + 1):
            with wrapped.no_sync() if number < micro_batches else nullcontext():
                x, used = torch.randn(4, 128, generator=source), (step + dist.get_rank()) % 2 == 0
                (wrapped(x, used or not sometimes) / 100).backward()
            wrapped.finish() if mini else None
        sgd.step()
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def train_both() -> list[Tensor]:
    """First with gradients that are missing at times, then with all of them, which can be read in
    the trace: a barrier stands before each."""
    trained = []
    for how in ((True, 3, 20), (False, 1, 3)):
        for mini in (True, False):
            dist.barrier()
            trained.append(train(mini, *how))
    return trained


def last_calls(job: Run) -> list[list[int]]:
    """The bytes of the last two all_reduce of each training."""
    calls: list[list[int]] = []
    for event in job.trace.of(0):
        if event.op == "barrier":
            calls.append([])
        elif event.op.startswith("all_reduce"):
            calls[-1].append(event.nbytes)
    return [each[-2:] for each in calls]


@pytest.mark.slow
def test_it_trains_as_ddp_does_with_the_same_calls() -> None:
    job = run(train_both, world_size=2)
    for mini, ddp, *_ in job.results:
        torch.testing.assert_close(mini, ddp, rtol=1e-6, atol=1e-6)
    *_, mini_calls, ddp_calls = last_calls(job)
    assert mini_calls == ddp_calls and len(set(mini_calls)) == 2


def normalised(sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
    source = torch.Generator().manual_seed(dist.get_rank())
    x, dy = (torch.randn(sizes[dist.get_rank()], 5, generator=source) for _ in range(2))
    weight, bias = torch.linspace(0.5, 2, 5).requires_grad_(), torch.ones(5).requires_grad_()
    y = NAMES["sync_batch_norm"](x.requires_grad_(), weight, bias, 1e-5)
    y.backward(dy)
    return x.detach(), dy, y.detach(), x.grad, weight.grad, bias.grad


@pytest.mark.slow
def test_its_norm_is_that_of_all_batches_together() -> None:
    results = zip(*simulate(normalised, (1, 7, 0), world_size=3).results, strict=True)
    x, dy, *got = (torch.cat(part).double() for part in results)
    weight = torch.linspace(0.5, 2, 5).double().requires_grad_()
    bias = torch.ones(5).double().requires_grad_()
    whole = nn.functional.batch_norm(x.requires_grad_(), None, None, weight, bias, True, eps=1e-5)
    whole.backward(dy)
    wants = whole, x.grad, weight.grad, bias.grad
    got[2:] = (t.view(3, 5).sum(0) for t in got[2:])
    for mine, want in zip(got, wants, strict=True):
        torch.testing.assert_close(mine, want, rtol=1e-6, atol=1e-6)


def test_no_batch_holds_numbers_that_lie_too_close_together() -> None:
    """A right answer may subtract squares in float32, which takes digits where they do."""
    norm = find("sync_batch_norm")
    for seed in range(20):
        for case in [*norm.core(random.Random(seed)), *norm.sturdy(random.Random(seed))]:
            drawn = replace(case, seed=seed)
            shares = [norm.inputs(drawn, rank)[0].given["x"] for rank in range(case.world)]
            x = torch.cat(shares).double().transpose(0, 1).flatten(1)
            assert (x.var(1, correction=0) > x.mean(1).square() / 10 + 0.5).all(), drawn
