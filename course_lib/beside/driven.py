"""What tries an answer that is not called once and done: a class, a function with a backward.

Such an exercise has one argument, and ``in_rank`` calls ``argument.use(answer)``. It notes what it
sees on the way, and ``left()`` is what is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_lib.beside.memory import MemoryCounter, reading
from course_lib.beside.seen import Noted, left
from course_lib.context import compute

AT_PEAK = "at the peak"
FORWARD, BACKWARD = 1e-3, 2e-3  # seconds that a layer computes
# rounds that end with the mean
REDUCES = ("sync", "sync with all layers", "backward half in no_sync", "evaluate between")


def back(out: Tensor, gradient: Tensor) -> None:
    """out.backward(gradient); said so, it would import sympy, for half a second a process."""
    (out * gradient.to(out.dtype)).sum().backward()


class Net(nn.Module):
    """Layers one after the other, of which a call may leave some out. In a rank they take time.

    They run in their order, or with the second and the third ``swapped``.
    """

    timed = False

    def __init__(self, layers: nn.Sequential, swapped: bool) -> None:
        super().__init__()
        for name, layer in layers.named_children():
            self.add_module(name, layer)
        self.run = [*self.named_children()]
        if swapped:
            self.run[1:3] = self.run[2:0:-1]

    def forward(self, x: Tensor, without: Collection[str] = ()) -> Tensor:
        for name, layer in self.run:
            if name not in without:
                x = layer(x.to(next(layer.parameters(), x).dtype))
                if self.timed and isinstance(layer, nn.Linear) and torch.is_grad_enabled():
                    compute(FORWARD)
                    if x.requires_grad:
                        x.register_hook(lambda gradient: compute(BACKWARD))
        return x


@dataclass(repr=False, eq=False)
class Training(Noted):
    """Rounds of training, each a forward and a backward pass, with a wrapper of the model. A
    barrier before each marks in the trace where it begins.

    A round is called ``sync`` or ``no_sync``, or says which half of it lies in no_sync; in
    ``sync with all layers`` and ``no_sync kept gradient`` none is left out. ``evaluate`` has no
    backward pass, and no gradient is asked for; ``evaluate between`` has such a pass between its
    own two, in no_sync.
    """

    words = "a model and batches"
    model: Net
    rounds: tuple[str, ...]
    batches: list[Tensor]
    cap_bytes: int
    without: tuple[str, ...] = ()

    def use(self, wrapper: Callable) -> None:
        self.model.timed = True
        wrapped = wrapper(self.model, self.cap_bytes)
        sgd = self.begins()
        for number, kind in enumerate(self.rounds):
            dist.barrier()
            self.passes(wrapped, number, wrapped.no_sync)
            if kind != "evaluate":
                wrapped.finish()
            self.ends(number, sgd)
        dist.barrier()

    def passes(self, model: Any, number: int, no_sync: Callable = nullcontext) -> None:
        kind, batch = self.rounds[number], self.batches[number]
        both = kind.startswith("no_sync")
        without = () if kind.endswith(("all layers", "kept gradient")) else self.without
        with torch.set_grad_enabled(kind != "evaluate"):
            with no_sync() if both or kind == "forward half in no_sync" else nullcontext():
                if "nested" in kind:
                    with no_sync():
                        pass
                out = model(batch, without=without)
                if both:
                    back(out, batch)
            if kind == "evaluate between":
                with torch.no_grad(), no_sync():
                    model(batch)
            with no_sync() if kind == "backward half in no_sync" else nullcontext():
                if not both and out.requires_grad:
                    back(out, batch)

    def trained(self) -> list[nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def begins(self) -> torch.optim.Optimizer:
        """Note what the model has at the start."""
        for name, t in (*self.model.named_parameters(), *self.model.named_buffers()):
            self.noted[f"at the start, {name}"] = t.detach().clone()
        return torch.optim.SGD(self.trained(), lr=0.125)

    def ends(self, number: int, sgd: torch.optim.Optimizer) -> None:
        """Note the gradients of a round; where a step is due, take it."""
        for name, p in self.model.named_parameters():
            grad = None if p.grad is None else p.grad.detach().clone()
            self.noted[f"round {number + 1}, {name}.grad"] = grad
        if self.rounds[number] in REDUCES:
            sgd.step()
            sgd.zero_grad()


@dataclass(repr=False, eq=False)
class BothWays(Noted):
    """A forward and a backward pass through a function of tensors and of the ``rest``. Barriers
    mark in the trace where each begins. There is no way back where ``upstream`` has another shape.
    ``counted``: when the bytes alive are noted, between forward and backward or at forward's peak.
    """

    given: dict[str, Tensor]
    rest: tuple
    upstream: Tensor
    constant: Collection[str] = ()  # no gradient of these is asked for
    counted: str = ""

    def __repr__(self) -> str:
        return ", ".join(self.given)

    def use(self, function: Callable) -> None:
        own = {
            name: t.clone().requires_grad_(name not in self.constant)
            for name, t in self.given.items()
        }
        kept = [(t, t.clone()) for t in self.rest if isinstance(t, Tensor)]
        counter = MemoryCounter([*own.values(), self.rest, self.upstream], draws=False)
        with counter if self.counted else nullcontext():
            dist.barrier()
            out = function(*own.values(), *self.rest)
            dist.barrier()
            if self.counted:
                self.noted |= reading(counter, peak=self.counted == AT_PEAK)
            is_right = isinstance(out, Tensor) and out.shape == self.upstream.shape
            if is_right and out.requires_grad:
                back(out, self.upstream)
        self.noted["output"] = out.detach().clone() if isinstance(out, Tensor) else out
        self.noted |= {f"{name}.grad": t.grad for name, t in own.items()}
        if not all(torch.equal(t, before) for t, before in kept):
            raise ValueError("one of the caller's tensors has changed")
        for name, t in own.items():
            if not torch.equal(t.detach(), self.given[name]):
                raise ValueError(f"the caller's {name} has changed")
            if t._backward_hooks:
                raise ValueError(f"the caller's {name} has kept a hook")


@dataclass(repr=False, eq=False)
class Salted:
    """A model, given to a function in a process that hashes text in its own way: ``hash`` is
    salted anew in each Python that is started, as torchrun starts them."""

    model: nn.Module
    rank: int

    def __repr__(self) -> str:
        return "a model"

    def left(self) -> Any:
        return left(self.model)

    def use(self, function: Callable) -> Any:
        answer = function.args[0] if isinstance(function, partial) else function
        getattr(answer, "__globals__", {})["hash"] = self.hash
        return function(self.model)

    def hash(self, value: Any) -> int:
        if isinstance(value, tuple):
            return hash(tuple(map(self.hash, value)))
        return hash((self.rank, value)) if isinstance(value, str | bytes) else hash(value)
