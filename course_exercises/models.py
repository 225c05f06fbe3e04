"""Small models, each with something special in it, which is a feature of the case that names it.

Weights, buffers and gradients are filled with numbers that the case and a salt choose, so that the
ranks' models can be alike or not.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from course_check.cases import Case
from course_exercises.drivers.counts import Counts

BUFFERS = (
    "Running means and counters are tensors of a model, too; some are integers, and some are not "
    "saved with it."
)
WORDS: dict[str, str | None] = {
    **dict.fromkeys(["one layer", "two layers", "four layers", "six layers"]),
    "first layer frozen": "a layer is frozen. A frozen parameter has no gradient, and is a part of "
    "the model all the same.",
    "dropout": "the model has Dropout. Which calls switch a model between training and evaluation?",
    "a shared weight": "two layers share a weight. It is one parameter, under two names.",
    "buffers": f"the model has buffers. {BUFFERS}",
    "buffers between": f"a layer with buffers lies between two others. {BUFFERS}",
    "an empty weight": "a weight has no elements. It is a parameter, too, and equal everywhere.",
    "a large layer": "a layer is large. How much of it is looked at?",
    "layers in layers": "layers lie inside of layers. Does it visit all of them?",
    "two dtypes": "the model has parameters of two dtypes. Which dtype do they pass through?",
    "another dtype": "the next parameter has another dtype. A bucket closes there for good. What "
    "does the new one begin with?",
    "two swapped": "two layers run in another order than that of parameters(). Which bucket goes "
    "first, and which of the next ones are full by then?",
    "without gradient": "a gradient is missing on some rank. A missing one counts as zero, and its "
    "rank has to make the same calls as all others.",
    "left over": "gradients are left over from before. They are no part of this step.",
    "an empty batch": "some rank's batch is empty. The mean of nothing is NaN. A rank without "
    "samples still has to make every call.",
    "batches of unequal size": "the batches differ in size. Each sample counts the same.",
}
SAMPLES = "samples"  # the name of an option: by rank, how many are in its batch


def build(kind: str, dtype: torch.dtype) -> nn.Sequential:
    """A model of this kind, its tensors not yet filled; logits (B, 2) from inputs (B, 2)."""
    if kind == "a large layer":  # more numbers than a tensor's text shows
        return nn.Sequential(OrderedDict(linear=nn.Linear(40, 40, dtype=dtype)))
    if kind == "one layer":
        return nn.Sequential(OrderedDict(linear=nn.Linear(2, 2, dtype=dtype)))
    many = {"four layers": 4, "two swapped": 4, "six layers": 6}.get(kind, 2)
    names = ("first", "second", "third", "fourth", "fifth", "sixth")[:many]
    layers: dict[str, nn.Module] = {name: nn.Linear(2, 2, dtype=dtype) for name in names}
    first, second, *_ = layers.values()
    if kind == "first layer frozen":
        first.requires_grad_(False)
    if kind == "a shared weight":
        second.weight = first.weight
    if kind == "buffers":
        layers["counts"] = Counts()
    if kind == "buffers between":
        layers = {"first": first, "counts": Counts(), "second": second}
    if kind == "an empty weight":
        second.weight = nn.Parameter(torch.empty(0, 2, dtype=dtype))
    if kind == "dropout":  # of everything, so that the ranks need not agree on chances
        layers = {"first": first, "dropout": nn.Dropout(1.0), "second": second}
    if kind == "layers in layers":
        layers = {"block": nn.Sequential(first, nn.Sequential(second))}
    if kind == "two dtypes":
        layers["wide"] = nn.Linear(2, 2, dtype=torch.float64)
    if kind == "another dtype":
        layers = {"first": first, "wide": nn.Linear(2, 2, dtype=torch.float64), "second": second}
    return nn.Sequential(OrderedDict(layers))


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
    """Give each trained parameter a gradient. In small worlds ``salt`` is the rank, and the digits
    of a sum then spell whose gradients are in it.
    """
    for k, p in enumerate(p for p in made.parameters() if p.requires_grad):
        rng = case.random("grad", salt, k)
        unit = 10**salt if isinstance(salt, int) and case.world <= 5 else 0
        spelt = [float((k + i) % 9 + 1) * unit for i in range(p.numel())]
        numbers = spelt if unit else [float(rng.randrange(1, 60)) for _ in spelt]
        p.grad = torch.empty_like(p).copy_(torch.tensor(numbers).reshape(p.shape)).detach()


def batches(case: Case, rank: int) -> tuple:
    """Equal models and optimizers, and a batch of this rank's own; its size may be 0."""
    made, size = model(case, "all"), case.options[SAMPLES][rank]
    momentum = case.options.get("momentum", 0.0)
    if case.options.get("gradients") == "left over":
        give_gradients(made, case, rank)
    rng = case.random("batch", rank)
    rows = [[rng.randrange(-8, 9) / 8 for _ in range(2)] for _ in range(size)]
    x = torch.tensor(rows, dtype=getattr(torch, case.dtype)).reshape(size, 2)
    y = torch.tensor([rng.randrange(2) for _ in range(size)], dtype=torch.int64)
    return made, torch.optim.SGD(made.parameters(), lr=0.5, momentum=momentum), x, y
