"""A layer with buffers of every kind, for models that ranks are given."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Counts(nn.Module):
    """A layer that passes everything on and keeps statistics in buffers, as BatchNorm does: one of
    floats, one of integers, one that is not saved, and a name that nothing stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("variance", None)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x
