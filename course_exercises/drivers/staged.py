"""The driver of answers that run one stage of a pipeline, forward and backward.

    forward   F seconds     alive: + 1      a stage keeps what backward needs
    backward  B seconds     alive: − 1      and lets go of it

A stage counts its own. It is the rank's own word, as in sharded.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from course_check.harness.seen import Noted
from course_exercises.drivers.driven import BACKWARD, FORWARD
from course_lib.context import compute


class Stage(nn.Sequential):
    """Layers that take time together. ``alive`` micro-batches have been through forward and not
    through backward; ``most`` is the largest number of them."""

    alive = most = 0

    def forward(self, x: Tensor) -> Tensor:
        compute(FORWARD)
        y = super().forward(x)
        if y.requires_grad:
            self.alive += 1
            self.most = max(self.most, self.alive)
            y.register_hook(self.goes_back)
        return y

    def goes_back(self, gradient: Tensor) -> None:
        self.alive -= 1
        compute(BACKWARD)


@dataclass(repr=False, eq=False)
class Staged(Noted):
    """A stage, and the micro-batches of one step: the first rank's inputs, the last one's targets,
    None elsewhere."""

    words = "a stage and micro-batches"
    layers: nn.Sequential
    inputs: list[Tensor] | None
    targets: list[Tensor] | None
    m: int
    shape: tuple[int, ...]

    def use(self, function: Callable) -> Any:
        stage = Stage(*self.layers)
        mine = [*(self.inputs or []), *(self.targets or [])]
        before = [t.clone() for t in mine]
        loss = function(stage, self.inputs, self.targets, self.m, self.shape, mse_loss)
        if not all(map(torch.equal, mine, before)):
            raise ValueError("one of the caller's tensors has changed")
        self.noted |= {f"{name}.grad": p.grad for name, p in stage.named_parameters()}
        self.noted["alive"] = stage.most
        return loss
