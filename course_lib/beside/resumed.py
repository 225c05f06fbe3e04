"""What tries a training loop that goes on from its checkpoints: several lives, one after another.

Each rank has a folder of its own. Between lives all get what any of them has written, as on a disk
that they share. Ranks are killed all at once, between two calls that need all of them.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset

from course_lib.beside.seen import Noted

MOMENTS = ("draw", "step", "schedule")  # in which a rank may be killed
Death = tuple[str, int] | None  # a moment, and the step of this life


class Killed(BaseException):
    """The rank's life ends here."""


class Drawing(Dataset):
    """Samples with noise from the generators that are named."""

    def __init__(self, inputs: Tensor, targets: Tensor, draws: str) -> None:
        self.inputs, self.targets, self.draws = inputs, targets, draws
        self.before: Callable[[str], None] = lambda moment: None

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.before("draw")
        x = self.inputs[index]
        if "torch" in self.draws:
            x = x + torch.rand(())
        if "numpy" in self.draws:
            x = x + numpy.random.rand()
        if "random" in self.draws:
            x = x + random.random()
        return x.float(), self.targets[index]


class Steps(torch.optim.SGD):
    before: Callable[[str], None] = staticmethod(lambda moment: None)

    def step(self, *args: Any) -> Any:
        self.before("step")
        return super().step(*args)


def slower(step: int) -> float:
    return 1 / (1 + step)


class Schedule(torch.optim.lr_scheduler.LambdaLR):
    """What it keeps is its state: it has nothing of its own."""

    def step(self, *args: Any) -> None:
        self.optimizer.before("schedule")  # type: ignore[attr-defined]
        super().step(*args)


class Job:
    """What a training loop is given, fresh."""

    def __init__(self, plan: Resumed) -> None:
        self.model = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 2))
        for p, start in zip(self.model.parameters(), plan.weights, strict=True):
            p.data = start.clone()
        self.optimizer = Steps(self.model.parameters(), lr=0.25, momentum=0.875)
        self.scheduler = Schedule(self.optimizer, slower)
        self.dataset = Drawing(plan.inputs, plan.targets, plan.draws)
        self.batch_size = plan.batch_size

    def __repr__(self) -> str:
        return "a job"

    def weights(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}


@dataclass(repr=False, eq=False)
class Resumed(Noted):
    """Lives of a job: each trains to a step, or is killed on its way."""

    words = "a job"
    weights: list[Tensor]
    inputs: Tensor
    targets: Tensor
    batch_size: int
    draws: str
    lives: tuple[tuple[int, Death], ...]
    noted: dict[str, Any] = field(default_factory=dict)

    def use(self, answer: Callable) -> None:
        folder = Path(tempfile.mkdtemp())
        try:
            for number, (until, death) in enumerate(self.lives, 1):
                job, before = Job(self), contents(folder)
                seed(number, dist.get_rank())
                if death:
                    kill_in(job, *death)
                losses: Any = None
                try:
                    losses = answer(job, str(folder), until)
                except Killed:
                    losses = "killed"
                self.noted |= ends(number, losses, job)
                self.noted[f"life {number}, writers"] = share(folder, before)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def ends(number: int, losses: Any, job: Job) -> dict[str, Any]:
    """What is noted of a life: of one that was killed only that."""
    if isinstance(losses, str):
        return {f"life {number}": losses}
    weights = {f"life {number}, {name}": t for name, t in job.weights().items()}
    return {f"life {number}": losses} | weights


def seed(life: int, rank: int) -> None:
    """A new process has other numbers to draw."""
    number = 1000 * life + rank
    torch.manual_seed(number)
    numpy.random.seed(number)
    random.seed(number)


def kill_in(job: Job, moment: str, step: int) -> None:
    """Have it raise Killed in a moment of this life's step: when its batch is drawn, in its
    optimizer.step() or in its scheduler.step()."""
    made = [0]  # steps of this life that have begun

    def reached(here: str) -> None:
        made[0] += here == "step"
        if here == moment and made[0] == step - (here == "draw"):
            raise Killed

    job.dataset.before = reached
    job.optimizer.before = reached


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def share(folder: Path, before: dict[str, bytes]) -> str:
    """Every rank gets every file; the ranks that have changed any."""
    mine = contents(folder)
    all_files: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_files, mine if mine != before else None)
    for theirs in all_files:
        for name, data in (theirs or {}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    return ", ".join(str(rank) for rank, theirs in enumerate(all_files) if theirs is not None)
