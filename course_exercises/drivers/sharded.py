"""Arguments for answers that hold a part of something large: they count the bytes of a rank.

Like the arguments of driven.py, each has ``use(answer)`` and ``left()``. The bytes are noted beside
the values, under names of their own, and the rules of an exercise read them. A rank counts its own:
an answer that means to could lie about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_check.harness.seen import Noted
from course_lib.context import current
from course_tools.count_memory import MemoryCounter, reading

SMALL = 16 << 10  # bytes of parameters below which nobody counts


def draw_positive(seed: int, like: Tensor) -> Tensor:
    """Whole numbers from 1 to 8. They are drawn anew each time, so that nobody has to keep them,
    and lie in memory as ``like`` does: so does a gradient beside its parameter.
    """
    source = torch.Generator().manual_seed(seed)
    return torch.empty_like(like).copy_(torch.randint(1, 9, like.shape, generator=source))


ALL_ZERO = -1  # in place of a seed: the gradient of a layer that nothing reaches


@dataclass(repr=False, eq=False)
class Optimizing(Noted):
    """Steps of an optimizer, each with gradients that ``seeds`` draw: by step, by parameter, None
    for none. A barrier before each step marks in the trace where it begins.
    """

    words = "parameters and gradients"
    params: list[nn.Parameter]
    make: str  # a class of torch.optim
    options: dict[str, Any]
    seeds: list[list[int | None]]
    as_generator: bool = False

    def use(self, optimizer: Callable) -> None:
        counted = MemoryCounter(self.params, draws=False) if self.is_counted else nullcontext()
        with counted as memory:
            given = (p for p in self.params) if self.as_generator else [*self.params]
            mine = optimizer(given, getattr(torch.optim, self.make), **self.options)
            steps = [self.step(mine, number) for number in range(len(self.seeds))]
            dist.barrier()
            if memory is not None:
                self.noted |= reading(memory)
        for number, (arrays, gone) in enumerate(steps):
            self.notes(number, map(torch.as_tensor, arrays), gone)

    @property
    def is_counted(self) -> bool:
        """Whether what is to be counted is more than a few words."""
        return sum(p.nbytes for p in self.params) >= SMALL

    def copied(self, parameter: Tensor) -> Any:
        """Where bytes are counted an array, which nobody counts. (numpy has no bfloat16.)"""
        return parameter.numpy().copy() if self.is_counted else parameter.clone()

    def step(self, mine: Any, step: int) -> tuple[list, list[bool]]:
        """The parameters afterwards, and whose gradient is gone after zero_grad()."""
        for number, p in enumerate(self.params):
            p.grad = self.gradient(step, number)
        dist.barrier()
        mine.step()
        arrays = [self.copied(parameter.detach()) for parameter in self.params]
        mine.zero_grad()
        return arrays, [parameter.grad is None for parameter in self.params]

    def gradient(self, step: int, number: int) -> Tensor | None:
        seed, parameter = self.seeds[step][number], self.params[number]
        if seed == ALL_ZERO:
            return torch.zeros_like(parameter)
        return None if seed is None else draw_positive(seed, parameter)

    def notes(self, step: int, values: Iterable[Tensor], gone: Iterable[bool]) -> None:
        for number, (value, is_gone) in enumerate(zip(values, gone, strict=True), 1):
            name = f"step {step + 1}, parameter {number}"
            self.noted |= {name: value, f"{name}: gradient gone": is_gone}


class ReadCounter(MemoryCounter):
    """Counts also how often Python asks for the number that is in a tensor, as ``item()`` does."""

    reads = 0

    def __torch_dispatch__(self, func: Any, *rest: Any) -> Any:
        self.reads += func is torch.ops.aten._local_scalar_dense.default
        return super().__torch_dispatch__(func, *rest)


@dataclass(repr=False, eq=False)
class Layers(Noted):
    """Layers that a rank has a shard of: (seconds that each computes, shard)."""

    words = "layers"
    layers: list[tuple[float, Tensor]]

    def use(self, function: Callable) -> None:
        """``spare while computing``: by how many bytes at least a rank held more than its shards
        and the layer being computed; below zero it was not whole. ``reads``: see ReadCounter."""
        rank, n, spare = current(), dist.get_world_size(), []
        sizes = iter([shard.nbytes for _, shard in self.layers])
        plain = rank.compute

        def compute(seconds: float) -> float | None:
            spare.append(memory.now - n * next(sizes, 0) - given)
            return plain(seconds)

        dist.barrier()
        with ReadCounter([shard for _, shard in self.layers], draws=False) as memory:
            given = memory.now
            rank.compute = compute  # type: ignore[method-assign]
            try:
                self.noted["sums"] = function(self.layers)
            finally:
                del rank.compute
            self.noted |= reading(memory, peak=True)
            self.noted["reads"] = memory.reads
        self.noted["spare while computing"] = min(spare, default=0)


@dataclass(repr=False, eq=False)
class Clipping(Noted):
    """Gradients, None for none, and of each whether it is this rank's piece of a larger one."""

    grads: list[tuple[Tensor | None, bool]]
    max_norm: float
    as_generator: bool = False

    def __repr__(self) -> str:
        kinds = ("on all ranks", "a piece")
        return ", ".join(f"{kinds[cut]} {g if g is None else g.tolist()}" for g, cut in self.grads)

    def use(self, function: Callable) -> Any:
        params = []
        for grad, cut in self.grads:
            params.append(nn.Parameter(torch.zeros(1) if grad is None else torch.zeros_like(grad)))
            params[-1].grad, params[-1].sharded = grad, cut  # type: ignore[attr-defined]
        out = function((p for p in params) if self.as_generator else params, self.max_norm)
        pairs = zip(params, self.grads, strict=True)
        self.notes([p.grad for p in params], [p.grad is grad for p, (grad, _) in pairs])
        return out

    def notes(self, grads: list[Tensor | None], kept: list[bool]) -> None:
        for k, (grad, is_kept) in enumerate(zip(grads, kept, strict=True), 1):
            self.noted |= {f"parameter {k}.grad": grad, f"parameter {k}: in place": is_kept}
