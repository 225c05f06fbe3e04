"""What ranks of lesson 06 are given: a dataset and a model that note what they are used for.

When answers are graded, ranks have this file in their memory: nothing in it is what is expected of
an answer.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules import batchnorm, dropout
from torch.nn.modules import module as hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

# Layers whose output hangs on chance, or on the rest of the batch, until eval() is called.
BY_CHANCE = (dropout._DropoutNd, batchnorm._BatchNorm)


@dataclass
class Shown:
    """One forward pass: the numbers of the samples it was shown, and the logits that came out."""

    samples: list[int]
    logits: Tensor
    gradient_bytes: int  # of the parameters that are trained
    weights: Tensor  # of every parameter the sum of its squares
    under_ddp: bool  # it went through a DistributedDataParallel
    by_chance: bool  # dropout was on, or batches were normalised by themselves
    trained: bool = False  # a gradient came back
    stale: bool = False  # and was added to one from before a step
    travels: ClassVar = {  # from a rank that is graded to its judge, and of which type
        "samples": list, "logits": Tensor, "gradient_bytes": int, "weights": Tensor,
        "under_ddp": bool, "by_chance": bool, "trained": bool, "stale": bool,
    }  # fmt: skip


class Digits(TensorDataset):
    """The images and labels of a case. Once somebody looks at them, every model is watched."""

    travels: ClassVar = {"seen": list}

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.seen: list[Shown] = []
        self.fetched: list[int] = []
        super().__init__(images, labels)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        _watch(self)
        return self.data

    @tensors.setter
    def tensors(self, value: tuple[Tensor, ...]) -> None:
        self.data = value

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        if isinstance(index, int):
            self.fetched.append(index)
        return super().__getitem__(index)

    def __str__(self) -> str:
        return f"{len(self.data[0])} images"

    __repr__ = __str__

    def which(self, batch: Tensor) -> list[int]:
        """The numbers of these samples: by their look, whatever their scale and shape; where they
        have been changed beyond that, by what was fetched last. Empty where they are none."""
        rows, known = _looks(batch), _looks(self.data[0])
        if rows.shape[1:] == known.shape[1:]:
            alike, numbers = (rows @ known.T).max(dim=1)
            if bool((alike > 0.999).all()):
                return numbers.tolist()
        return self.fetched[-len(batch) :] if len(self.fetched) >= len(batch) else []


def _looks(batch: Tensor) -> Tensor:
    rows = batch.detach().double().flatten(1)
    rows = rows - rows.mean(dim=1, keepdim=True)
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)


_here = threading.local()  # .dataset: what this rank's models are shown; .depth: calls in calls


_hooked = threading.Lock()


def _watch(dataset: Digits) -> None:
    """From now on note what this thread's models make of ``dataset``."""
    if getattr(_here, "dataset", None) is not dataset:
        _here.dataset, _here.depth = dataset, 0
    if _hooked.acquire(blocking=False):  # once a process, and for good
        hooks.register_module_forward_pre_hook(_before)
        hooks.register_module_forward_hook(_after)


def _before(_: nn.Module, __: tuple) -> None:
    _here.depth = getattr(_here, "depth", 0) + 1


def _after(module: nn.Module, args: tuple, output: Any) -> None:
    """Note the outermost call that turns a batch of images into logits."""
    _here.depth -= 1
    dataset = getattr(_here, "dataset", None)
    if dataset is None or _here.depth or not args or not isinstance(output, Tensor):
        return
    batch = args[0]
    if not isinstance(batch, Tensor) or output.dim() != 2 or not 0 < len(batch) == len(output):
        return
    if samples := dataset.which(batch):
        trained = (p for p in module.parameters() if p.requires_grad)
        size = sum(p.numel() * p.element_size() for p in trained)
        wrapped = any(isinstance(m, DistributedDataParallel) for m in module.modules())
        chance = any(isinstance(m, BY_CHANCE) and m.training for m in module.modules())
        squares = [p.detach().double().square().sum() for p in module.parameters()]
        weights = torch.tensor(squares, dtype=torch.float64)
        logits = output.detach().float().cpu().clone()
        shown = Shown(samples, logits, size, weights, wrapped, chance)
        dataset.seen.append(shown)
        if output.requires_grad:
            output.register_hook(lambda _: _learns(dataset, shown, module))


def _learns(dataset: Digits, shown: Shown, module: nn.Module) -> None:
    """Note that backward() begins, and whether it finds gradients from before the last step."""
    before = [s.weights for s in dataset.seen if s.trained][-1:]
    stepped = any(not torch.equal(weights, shown.weights) for weights in before)
    kept = any(p.grad is not None and bool(p.grad.any()) for p in module.parameters())
    shown.trained, shown.stale = True, stepped and kept


LEARNING_RATE = 0.5


def _near(value: Tensor, other: Tensor) -> bool:
    return torch.allclose(value, other, rtol=1e-4, atol=2e-5)


class Weights:
    """A model's parameters after the step, and how its forward passes were called."""

    travels: ClassVar = {
        "values": dict, "passes": tuple, "gradients": dict, "used_no_sync": bool, "reduces": bool,
    }  # fmt: skip

    def __init__(self, values: dict[str, Tensor], passes: tuple[bool, ...] = (),
                 gradients: dict[str, Tensor | None] | None = None,
                 used_no_sync: bool = False, reduces: bool = True) -> None:  # fmt: skip
        self.values, self.passes, self.used_no_sync = values, passes, used_no_sync
        self.gradients, self.reduces = gradients or {}, reduces

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Weights)
            and self.values.keys() == other.values.keys()
            and all(_near(value, other.values[name]) for name, value in self.values.items())
        )

    def __str__(self) -> str:
        last = list(self.values.values())[-1].flatten()
        return "weights … " + ", ".join(f"{v:.4f}" for v in last.tolist())

    __repr__ = __str__


class Packed(nn.Module):
    """A model on its way to a rank. The copy that a rank makes of it is under DDP."""

    def __init__(self, module: nn.Module, stale: bool) -> None:
        super().__init__()
        self.module, self.stale = module, stale

    def __deepcopy__(self, memo: dict) -> Unpacked:
        model = Unpacked(copy.deepcopy(self.module, memo))
        for p in model.parameters() if self.stale else ():
            p.grad = torch.ones_like(p)
        return model

    def __str__(self) -> str:
        return "a model"

    __repr__ = __str__


class Unpacked(DistributedDataParallel):
    """DDP that notes of each forward pass whether its gradients will be reduced."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.passes: list[bool] = []
        self.used_no_sync = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            self.passes.append(self.require_backward_grad_sync)
        return super().forward(*args, **kwargs)

    def no_sync(self) -> Any:
        self.used_no_sync = True
        return super().no_sync()

    def refill(self, other: Unpacked) -> Unpacked:
        """The same model, with the numbers and gradients of another one of its kind."""
        with torch.no_grad():
            for mine, theirs in zip(self.parameters(), other.parameters(), strict=True):
                mine.copy_(theirs)
                mine.grad = theirs.grad
        self.passes, self.used_no_sync = [], False
        return self

    def __deepcopy__(self, memo: dict) -> Weights:
        values = {k: p.detach().clone() for k, p in self.module.named_parameters()}
        gradients = {k: None if p.grad is None else p.grad.clone()
                     for k, p in self.module.named_parameters()}  # fmt: skip
        reduces = self.require_backward_grad_sync
        return Weights(values, tuple(self.passes), gradients, self.used_no_sync, reduces)


class Descent(torch.optim.SGD):
    """SGD whose name fits into a table."""

    def __repr__(self) -> str:
        return f"SGD(lr={LEARNING_RATE})"

    def refill(self, other: Descent) -> Descent:
        return self

    def __deepcopy__(self, memo: dict) -> Descent:
        return Descent([{"params": [copy.deepcopy(p, memo) for p in group["params"]]}
                        for group in self.param_groups], lr=LEARNING_RATE)  # fmt: skip
