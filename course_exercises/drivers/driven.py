"""Arguments for answers that are not called once and done: a class, a function with a backward.

Such an exercise has one argument, and the rank calls ``argument.use(answer)``. The argument notes
what it sees on the way, and ``left()`` returns what is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_check.harness.seen import Noted, left
from course_lib.context import compute, span
from course_tools.count_memory import MemoryCounter, reading

AT_PEAK = "at the peak"
FORWARD, BACKWARD = 1e-3, 2e-3  # seconds that a layer computes
PASSES = "forward pass", "backward pass"  # names of spans
MOMENT = 1e-6  # seconds between them, so that no call seems to lie in two
# rounds that end with the mean
REDUCES = ("sync", "sync with all layers", "backward half in no_sync", "evaluate between")


def run_backward(out: Tensor, gradient: Tensor, *leaves: Tensor) -> Sequence[Tensor]:
    """Do what ``out.backward(gradient)`` does, which would import sympy: half a second a process.

    If there are leaves, autograd is asked for their gradients, and leaves none in ``.grad``.
    """
    loss = (out * gradient.to(out.dtype)).sum()
    return torch.autograd.grad(loss, leaves, allow_unused=True) if leaves else loss.backward() or ()


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
                with no_sync() if "nested" in kind else nullcontext():
                    pass
                out = model(batch, without=without)
                if both:
                    run_backward(out, batch)
            if kind == "evaluate between":
                with torch.no_grad(), no_sync():
                    model(batch)
            with no_sync() if kind == "backward half in no_sync" else nullcontext():
                if not both and out.requires_grad:
                    run_backward(out, batch)

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
    """A forward and a backward pass through a function of tensors and of the ``rest``. Spans mark
    both in the trace, with a moment between them. There is no way back where ``upstream`` has
    another shape. ``counted``: when the bytes alive are noted, between forward and backward or at
    forward's peak.

    Gradients are asked for by ``torch.autograd.grad``: a backward that writes into ``.grad`` itself
    returns none, and two backward passes would leave the second one's alone. Then the function is
    used twice in one graph, the second time with other numbers: the first use has to contribute
    what it did before. A backward that keeps things outside ctx, or writes into the gradient that
    comes in, is right only where it is used once.
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
        trained = {f"{name}.grad": t for name, t in own.items() if t.requires_grad}
        kept = [(t, t.clone()) for t in (*own.values(), *self.rest) if isinstance(t, Tensor)]
        counter = MemoryCounter([*own.values(), self.rest, self.upstream], draws=False)
        with counter if self.counted else nullcontext():
            with span(PASSES[0]):
                out = function(*own.values(), *self.rest)
            compute(MOMENT)
            if self.counted:
                self.noted |= reading(counter, peak=self.counted == AT_PEAK)
            goes_back = getattr(out, "requires_grad", False) and out.shape == self.upstream.shape
            with span(PASSES[1]):
                grads = run_backward(out, self.upstream, *trained.values()) if goes_back else ()
        self.noted["output"] = out.detach().clone() if isinstance(out, Tensor) else out
        self.noted |= dict.fromkeys(f"{name}.grad" for name in own)
        self.noted |= zip(trained, grads, strict=False)
        refuse_changes([*own.values()], kept)
        if goes_back:
            compute(MOMENT)
            others = [(t.detach() / 2).requires_grad_(t.requires_grad) for t in own.values()]
            both = function(*own.values(), *self.rest) + function(*others, *self.rest)
            pairs = zip(run_backward(both, self.upstream, *trained.values()), grads, strict=True)
            if not all(
                a is b or torch.allclose(a, b, 1e-3, 1e-3, equal_nan=True) for a, b in pairs
            ):
                self.remarks.append("used twice")


def refuse_changes(leaves: list[Tensor], kept: list[tuple[Tensor, Tensor]]) -> None:
    """Raise if the answer has changed something of the caller's. ``kept`` has the caller's tensors,
    each with a copy of what it was.
    """
    if not all(torch.equal(t, before) for t, before in kept):
        raise ValueError("one of the caller's tensors has changed")
    if any(t._backward_hooks for t in leaves):
        raise ValueError("one of the caller's tensors has kept a hook")
    if any(t.grad is not None for t in leaves):
        raise ValueError("a gradient was written into .grad by the answer's own backward")


@dataclass(repr=False, eq=False)
class Salted(Noted):
    """A model, given to a function in a process that hashes text in its own way: ``hash`` is
    salted anew in each Python that is started, as torchrun starts them."""

    words = "a model"
    model: nn.Module
    rank: int

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
