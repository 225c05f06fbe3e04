"""A dataset that watches what becomes of its images in every forward pass."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm as norm
from torch.nn.modules import batchnorm, dropout
from torch.nn.modules import module as hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

BY_CHANCE = (dropout._DropoutNd, batchnorm._BatchNorm)  # until eval() is called
ALIKE = 0.9  # of the same image scaled, shifted or with a little noise; others have less than 0.8


class Watched(TensorDataset):
    """Images and labels, and what the models that a rank calls have made of them."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        super().__init__(images, labels)
        self.passes: list[dict[str, Any]] = []
        self.looks = _looks(images)

    def watch(self) -> None:
        """From now on, for this rank."""
        _watch()
        _here.dataset = self

    def __repr__(self) -> str:
        return f"{len(self.tensors[0])} images"

    def left(self) -> dict[str, Any]:
        return {"labels": self.tensors[1], "passes": self.passes}

    def which(self, batch: Tensor) -> list[int]:
        """The numbers of these samples, by their look, whatever their scale and shape. Empty where
        they are none."""
        rows = _looks(batch)
        if rows.shape[1:] != self.looks.shape[1:]:
            return []
        alike, numbers = (rows @ self.looks.T).max(dim=1)
        return numbers.tolist() if alike.min() > ALIKE else []

    def note(self, module: nn.Module, batch: Tensor, logits: Tensor) -> None:
        samples = self.which(batch)
        trained = [p for p in module.parameters() if p.requires_grad]
        seen = {
            "samples": samples,
            "logits": logits.detach().float().cpu().clone(),
            "weights": [norm(p.data, dtype=torch.float64).item() ** 2 for p in module.parameters()],
            "gradient bytes": sum(p.numel() * p.element_size() for p in trained),
            "under ddp": any(
                isinstance(m, DistributedDataParallel) and m.require_backward_grad_sync
                for m in module.modules()
            ),
            "by chance": any(isinstance(m, BY_CHANCE) and m.training for m in module.modules()),
            "trained": False,  # a gradient came back
            "stale": False,  # there were gradients already
        }
        if samples and logits.shape[1] > self.tensors[1].max():  # or these are no logits
            self.passes.append(seen)

        def came_back(_: Tensor) -> None:
            seen["stale"] = any(p.grad is not None and bool(p.grad.any()) for p in trained)
            seen["trained"] = True

        if logits.requires_grad:
            logits.register_hook(came_back)


def _looks(batch: Tensor) -> Tensor:
    rows = batch.detach().double().flatten(1)
    rows = rows - rows.mean(dim=1, keepdim=True)
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)


_here = threading.local()  # .dataset: what this rank's models are shown; .depth: calls in calls


@cache
def _watch() -> None:
    """Look at every module of this process from now on."""
    hooks.register_module_forward_pre_hook(_before)
    hooks.register_module_forward_hook(_after, always_call=True)


def _before(_: nn.Module, __: tuple) -> None:
    _here.depth = getattr(_here, "depth", 0) + 1


def _after(module: nn.Module, args: tuple, output: Any) -> None:
    """Note the outermost call that turns a batch of images into logits."""
    _here.depth = depth = getattr(_here, "depth", 1) - 1
    if depth or not args or not hasattr(_here, "dataset"):
        return
    tensors = isinstance(args[0], Tensor) and isinstance(output, Tensor)
    if tensors and output.dim() == 2 and 0 < len(args[0]) == len(output):
        _here.dataset.note(module, args[0], output)
