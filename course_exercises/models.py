"""Small models for exercises about models, each with something special in it, and their numbers.

Weights, buffers and gradients are filled with numbers that the case and a salt choose, so that the
ranks' models can be alike or not. A case names its model by ``options["model"]``, and what is
special about that model is a feature of the case.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from course_lib.beside.counts import Counts
from course_lib.checks.cases import Case


def build(kind: str, dtype: torch.dtype) -> nn.Sequential:
    """A model of this kind, its tensors not yet filled; logits (B, 2) from inputs (B, 2)."""
    if kind == "one layer":
        return nn.Sequential(OrderedDict(linear=nn.Linear(2, 2, dtype=dtype)))
    names = (
        ("first", "second", "third", "fourth")
        if kind in ("four layers", "two swapped")
        else ("first", "second")
    )
    layers: dict[str, nn.Module] = {name: nn.Linear(2, 2, dtype=dtype) for name in names}
    first, second, *_ = layers.values()
    if kind == "first layer frozen":
        first.requires_grad_(False)
    if kind == "a shared weight":
        second.weight = first.weight
    if kind == "buffers":
        layers["counts"] = Counts()
    if kind == "dropout":  # of everything, so that the ranks need not agree on chances
        layers = {"first": first, "dropout": nn.Dropout(1.0), "second": second}
    if kind == "layers in layers":
        layers = {"block": nn.Sequential(first, nn.Sequential(second))}
    if kind == "two dtypes":
        layers["wide"] = nn.Linear(2, 2, dtype=torch.float64)
    if kind == "another dtype":
        layers = {"first": first, "wide": nn.Linear(2, 2, dtype=torch.float64), "second": second}
    return nn.Sequential(OrderedDict(layers))


def models(*kinds: str, worlds: tuple[int, ...], **rest: Any) -> list[Case]:
    """A case for each kind of model and each world."""
    more = rest.pop("options", {})
    return [Case(w, options={"model": kind, **more}, **rest) for kind in kinds for w in worlds]


def model(case: Case, salt: object) -> nn.Sequential:
    """The case's model, its tensors filled with numbers that the salt chooses; no gradients."""
    made = build(case.options["model"], getattr(torch, case.dtype))
    rng = case.random("weights", salt)
    with torch.no_grad():
        for t in (*made.parameters(), *made.buffers()):
            numbers = [rng.randrange(1, 90) * rng.choice((-1, 1)) for _ in range(t.numel())]
            unit = {torch.float64: 7, torch.int64: 1}.get(t.dtype, 8)  # no float32 holds a seventh
            exact = torch.tensor(numbers, dtype=torch.float64) / unit
            if case.numbers == "large" and t.dtype == torch.int64:
                exact += 1 << 31  # a counter of many batches, which no float32 holds
            t.copy_(exact.to(t.dtype).reshape(t.shape))
    if case.layout == "transposed":
        for p in made.parameters():
            p.data = p.data.t().contiguous().t() if p.dim() == 2 else p.data
    return made


def give_gradients(made: nn.Module, case: Case, salt: object) -> None:
    """Each trained parameter gets a gradient; in small worlds of digits that spell, in a sum, whose
    they are: ``salt`` is then the rank."""
    for k, p in enumerate(p for p in made.parameters() if p.requires_grad):
        rng = case.random("grad", salt, k)
        unit = 10**salt if isinstance(salt, int) and case.world <= 5 else 0
        numbers = [
            float((k + i) % 9 + 1) * unit if unit else float(rng.randrange(1, 60))
            for i in range(p.numel())
        ]
        p.grad = torch.empty_like(p).copy_(torch.tensor(numbers).reshape(p.shape)).detach()


def columns(given: list[tuple]) -> list[list[tuple[str, nn.Parameter]]]:
    """For each parameter of the ranks' models: its name and itself, by rank."""
    return [
        list(by_rank)
        for by_rank in zip(*(args[0].named_parameters() for args in given), strict=True)
    ]
