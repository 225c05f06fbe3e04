"""The argument for a training loop that goes on from its checkpoints: it lives several times.

Each rank has a folder of its own. Between lives all get what any of them has written, as on a disk
that they share. Ranks are killed all at once, between two calls that need all of them.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset

from course_check.harness.seen import Noted
from course_exercises.drivers.lives import list_files

# In which moment of which step of its life a rank is killed: when the step's batch is drawn, before
# its optimizer.step() or after it ("schedule").
Death = tuple[str, int] | None


class Killed(BaseException):
    """The rank's life ends here."""


class Drawing(Dataset):
    """Samples with noise from the generators that are named."""

    def __init__(self, inputs: Tensor, targets: Tensor, draws: str) -> None:
        self.inputs, self.targets, self.draws = inputs, targets, draws
        self.before: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.before()
        x = self.inputs[index]
        x = x + torch.rand(()) if "torch" in self.draws else x
        x = x + numpy.random.rand() if "numpy" in self.draws else x
        x = x + random.random() if "random" in self.draws else x
        return x.float(), self.targets[index]


class Job:
    """What a training loop is given, fresh."""

    def __init__(self, plan: Resumed) -> None:
        self.model = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 2))
        for p, start in zip(self.model.parameters(), plan.weights, strict=True):
            p.data = start.clone()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.25, momentum=0.875)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: 1 / (1 + step)
        )
        self.dataset = Drawing(plan.inputs, plan.targets, plan.draws)
        self.batch_size = plan.batch_size


@dataclass
class Witness:
    """Kills a rank in its moment, and looks at what its saves do to the folder."""

    folder: Path
    death: Death
    steps: int = 0  # of this life, that have begun
    files: dict[int, bytes] = field(default_factory=dict)  # by inode
    in_place: bool = False

    def watch(self, job: Job) -> None:
        job.dataset.before = partial(self.reached, "draw")
        job.optimizer.register_step_pre_hook(lambda *_: self.reached("step"))
        job.optimizer.register_step_post_hook(lambda *_: self.reached("schedule"))

    def reached(self, moment: str) -> None:
        if moment == "step":
            self.steps += 1
            self.look()
        if self.death == (moment, self.steps + (moment == "draw")):
            raise Killed

    def look(self) -> None:
        """A save is in place if it writes into files that were there, and leaves none alone."""
        old = self.files
        self.files = {p.stat().st_ino: p.read_bytes() for p in list_files(self.folder).values()}
        stayed = [old[inode] == self.files[inode] for inode in old.keys() & self.files]
        self.in_place |= stayed != [] and not any(stayed)


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

    def use(self, answer: Callable) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            folder = Path(place)
            for number, (until, death) in enumerate(self.lives, 1):
                job, witness, before = Job(self), Witness(folder, death), read_contents(folder)
                seed(number, dist.get_rank())
                witness.watch(job)
                try:
                    losses: Any = answer(job, str(folder), until)
                except Killed:
                    losses = "killed"
                witness.look()
                saves = f"ranks {share(folder, before)}{' in place' * witness.in_place}"
                self.noted |= note_end(number, losses, job, saves)


def note_end(life: int, losses: Any, job: Job, saves: Any) -> dict[str, Any]:
    """What is noted of a life; weights only if it was not killed."""
    out = {f"life {life}": losses, f"life {life}, saves": saves}
    if not isinstance(losses, str):
        weights = nn.utils.parameters_to_vector(job.model.parameters())
        out[f"life {life}, weights"] = weights.detach()
    return out


def seed(life: int, rank: int) -> None:
    """Seed all generators: a new process has other numbers to draw."""
    for seeds in (torch.manual_seed, numpy.random.seed, random.seed):
        seeds(1000 * life + rank)


def read_contents(folder: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in list_files(folder).items()}


def share(folder: Path, before: dict[str, bytes]) -> str:
    """Give every rank every file; returns the ranks that have changed any."""
    mine = read_contents(folder)
    all_files: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_files, mine if mine != before else None)
    for theirs in all_files:
        for name, data in (theirs or {}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    return ", ".join(str(rank) for rank, theirs in enumerate(all_files) if theirs is not None)
