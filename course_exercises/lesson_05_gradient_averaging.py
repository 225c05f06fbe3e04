"""Lesson 05: average gradients, begin alike, know whether all are alike, take one step together."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from course_exercises.models import BUFFERS, WORDS, columns, give_gradients, model, models
from course_lib.beside.seen import Seen
from course_lib.checks.cases import Case, crowd
from course_lib.checks.exercise import Exercise, declare, turned

MISSING = "without gradient"

# ---- 05.1 average_gradients ----------------------------------------------------------------------


def average(
    given: list[tuple],
    by: Callable[[int], float] = lambda n: n,
    what: str = "grad",
    which: slice = slice(None),
    bare: bool = True,
) -> None:
    """Each gradient the mean of all ranks', a missing one counted as zero. The rest: mistakes."""
    for column in columns(given)[which]:
        there = [t.clone() for t in (getattr(p, what) for _, p in column) if t is not None]
        mean = sum(t.double() for t in there) / by(len(given))
        for _, p in column if there else ():
            if bare or p.grad is not None:
                setattr(p, what, torch.empty_like(p).copy_(mean).detach())


def zero_or_none(want: list[Seen], got: list[Seen]) -> list[Seen]:
    """Where nobody has a gradient it may stay None or become zero."""
    for mine, theirs in zip(want, got, strict=True):
        for name, value in mine.args[0].items():
            if name.endswith(".grad") and value is None and isinstance(theirs.args[0], dict):
                now = theirs.args[0].get(name)
                mine.args[0][name] = None if now is None else torch.zeros_like(now)
    return want


def lacks(case: Case, parameter: int, rank: int) -> bool:
    """Whether this rank has no gradient for its ``parameter``-th parameter."""
    return {
        "": False,
        "the first parameter on rank 0": parameter == 0 and rank == 0,
        "all parameters on the last rank": rank == case.world - 1,
        "the first parameter on any rank": parameter == 0,
    }[case.options.get(MISSING, "")]


def with_gradients(case: Case, rank: int) -> tuple:
    made = model(case, rank)
    give_gradients(made, case, rank)
    for k, p in enumerate(made.parameters()):
        p.grad = None if lacks(case, k, rank) else p.grad
    return (made,)


AVERAGES: list[tuple[str, str, dict]] = [  # mistakes that are made wherever there is a mean
    ("sum", "Every rank has the sum of all gradients, not their mean.", {"by": lambda n: 1}),
    (
        "divided-twice",
        "It is divided by the number of ranks a second time somewhere.",
        {"by": lambda n: n**2},
    ),
    (
        "one-too-few",
        "The sum is divided by n − 1. The mean of n numbers is their sum over n.",
        {"by": lambda n: n - 1},
    ),
    (
        "none-stays",
        "A rank that had no gradient still has none, while the others have the mean: "
        "its weights will fall behind theirs.",
        {"bare": False},
    ),
]
wrong = turned(average)
declare(
    Exercise(
        "05.1",
        "average_gradients",
        average,
        inputs=with_gradients,
        words=WORDS,
        core=lambda rng: [
            *models("one layer", worlds=(2, 3)),
            *models("two layers", worlds=(2, 5)),
            *(
                Case(w, options={"model": kind, MISSING: what})
                for w, kind, what in (
                    (2, "one layer", "the first parameter on rank 0"),
                    (3, "two layers", "all parameters on the last rank"),
                )
            ),
            *models("first layer frozen", "layers in layers", "a shared weight", worlds=(3,)),
        ],
        sturdy=lambda rng: [
            *models("two layers", worlds=(1, crowd(rng))),
            *models("two dtypes", worlds=(2,)),
            *models("two layers", worlds=(2,), dtype="bfloat16"),
            *models(
                "two layers",
                worlds=(2,),
                dtype="float64",
                options={MISSING: "the first parameter on rank 0"},
            ),
            *models("two layers", worlds=(2,), layout="transposed"),
            *models("two layers", worlds=(3,), calls=2),
            *models("buffers", worlds=(2,)),
            *models(
                "two layers", worlds=(2,), options={MISSING: "the first parameter on any rank"}
            ),
        ],
        settle=zero_or_none,
        tolerance=1e-6,
        length_is="",
        mistakes=[
            *(wrong(*known) for known in AVERAGES),
            wrong(
                "averages-weights",
                "The weights are averaged, or added up, and every rank keeps its "
                "own gradient. Which of a parameter's two tensors is to be the same for all?",
                {"what": "data"},
                {"what": "data", "by": lambda n: 1},
            ),
            wrong(
                "first-parameter",
                "Only the first gradient is averaged: does it visit all parameters?",
                which=slice(1),
            ),
        ],
    )
)


# ---- 05.2 broadcast_parameters -------------------------------------------------------------------


def spread(given: list[tuple], averages: bool = False, grads: bool = False) -> None:
    """Every rank has the parameters and buffers of src. The rest are mistakes."""
    states = [(*m.parameters(), *m.buffers()) for m, *_ in given]
    with torch.no_grad():
        for column in zip(*states, strict=True) if averages else ():
            mean = torch.stack([t.double() for t in column]).mean(0)
            for t in column:
                t.copy_(mean)
        for mine in states:
            for t, sent in zip(mine, states[given[0][1] if given[0][1:] else 0], strict=True):
                t.copy_(sent)
                if grads and t.grad is not None and sent.grad is not None:
                    t.grad.copy_(sent.grad)


def with_src(case: Case, rank: int) -> tuple:
    """A model of each rank's own; the root is named only where the case names one."""
    made = model(case, rank)
    give_gradients(made, case, rank)
    return (made, case.options["src"]) if "src" in case.options else (made,)


declare(
    Exercise(
        "05.2",
        "broadcast_parameters",
        spread,
        inputs=with_src,
        words=WORDS,
        core=lambda rng: [
            *models("one layer", "two layers", worlds=(2, 3)),
            *models("one layer", worlds=(2,), options={"src": 1}),
            *models("two layers", worlds=(5,), options={"src": rng.randrange(1, 5)}),
            *models(
                "buffers",
                "first layer frozen",
                "a shared weight",
                "layers in layers",
                worlds=(2,),
                options={"src": 1},
            ),
        ],
        sturdy=lambda rng: [
            *models("two layers", worlds=(1, crowd(rng))),
            *models("two dtypes", worlds=(2,), options={"src": 0}),
            *models("buffers", worlds=(2,), dtype="bfloat16", options={"src": 1}),
            *models("buffers", worlds=(2,), numbers="large", options={"src": 1}),
            *models("two layers", worlds=(2,), layout="transposed", options={"src": 0}),
            *models("buffers", worlds=(3,), calls=2, options={"src": 1}, later=({"src": 2},)),
        ],
        length_is="",
        mistakes=[
            turned(spread)(
                "averages",
                "Every rank has the means over all ranks. What src has is asked for, untouched.",
                averages=True,
            ),
            turned(spread)(
                "gradients-too",
                "Every rank has src's gradients as well. Only parameters "
                "and buffers are asked for.",
                grads=True,
            ),
        ],
    )
)


# ---- 05.3 same_everywhere ------------------------------------------------------------------------

FIRST = (0.5, -1.25, 0.75, 2.0)  # what the first parameter's numbers are, but for a difference
CHANGES: dict[str, tuple[float, ...]] = {  # what they are where it differs
    "another weight": (0.5, -1.25, 1.75, 2.0),
    "two weights swapped": (-1.25, 0.5, 0.75, 2.0),
    "another last bit": (0.5, -1.25, 0.75, 2.0000002384185791015625),
    "a NaN": (0.5, -1.25, float("nan"), 2.0),
}
BY, BUFFER, ON = "differs by", "another buffer", "on rank"


def nearly_alike(case: Case, rank: int) -> tuple:
    """The same model on every rank, but for what the case says."""
    made, what = model(case, "all"), case.options.get(BY, "nothing")
    here = rank == case.options.get(ON, case.world - 1)
    first = CHANGES["a NaN"] if what == "nothing, with a NaN" else FIRST
    with torch.no_grad():
        numbers = CHANGES.get(what, first) if here else first
        next(made.parameters()).copy_(torch.tensor(numbers).view(2, 2))
        if here and what == "another last parameter":
            list(made.parameters())[-1].add_(1)
        if here and BUFFER in case.options:
            made.get_buffer(case.options[BUFFER]).add_(1)
    return (made,)


def state(module: nn.Module) -> list[Tensor]:
    return [t.detach() for t in (*module.parameters(), *module.buffers())]


def bits(tensors: Iterable[Tensor]) -> list:
    return [t.contiguous().reshape(-1).view(torch.uint8).tolist() for t in tensors]


def alike(
    given: list[tuple],
    sees: Callable[[nn.Module], list] = lambda m: bits(state(m)),
    told: Callable[[list[bool], int], bool] = lambda equal, rank: all(equal),
) -> list[bool]:
    """Whether all models have the same bits. Mistakes see less of them, or tell fewer."""
    first, *others = [sees(module) for (module,) in given]
    equal = [True, *(first == other for other in others)]
    return [told(equal, rank) for rank in range(len(given))]


def differing(kind: str, what: str, *worlds: int, **more: object) -> list[Case]:
    return models(kind, worlds=worlds, options={BY: what, **more})


wrong = turned(alike)
declare(
    Exercise(
        "05.3",
        "same_everywhere",
        alike,
        inputs=nearly_alike,
        words=WORDS | {BUFFER: ("a buffer differs", BUFFERS)},
        core=lambda rng: [
            *differing("one layer", "nothing", 2, 3),
            *differing("buffers", "nothing", 3),
            *(
                c
                for what in (*CHANGES, "another last parameter")
                if what != "a NaN"
                for c in differing("one layer", what, 2)
            ),
            *differing("one layer", "another weight", 3, 4),
            *differing("two layers", "another weight", 4, **{ON: 1}),
            *differing("first layer frozen", "another weight", 2),
            *(
                Case(2, options={"model": "buffers", BUFFER: name})
                for name in ("counts.mean", "counts.count", "counts.cache")
            ),
        ],
        sturdy=lambda rng: [
            *differing("one layer", "nothing", 1, crowd(rng)),
            *differing("two dtypes", "nothing", 2),
            *differing("one layer", "nothing, with a NaN", 2),
            *differing("one layer", "a NaN", 2),
            *differing("one layer", "another weight", 8),
            *models("two layers", worlds=(2,), layout="transposed", options={BY: "nothing"}),
            *models(
                "one layer",
                worlds=(3,),
                calls=2,
                options={BY: "another weight"},
                later=({BY: "nothing"},),
            ),
        ],
        length_is="",
        mistakes=[
            wrong(
                "local",
                "Ranks come to different answers. What one rank has found out has to reach "
                "all the others.",
                told=lambda equal, rank: equal[rank],
            ),
            wrong(
                "nan-differs",
                "A NaN is not equal to itself, but its bits are.",
                sees=lambda m: [[float(v) for v in t.flatten()] for t in state(m)],
            ),
            wrong(
                "sums",
                "Sums can be equal where the numbers are not: two weights swapped, one up "
                "and another down.",
                sees=lambda m: [t.double().sum().item() for t in state(m)],
            ),
            wrong(
                "tolerance",
                "Models that differ in the last bit pass for equal. Training makes more "
                "of a last bit: bit-equal is asked for.",
                sees=lambda m: [(t.double() * 1e4).round().tolist() for t in state(m)],
            ),
            wrong(
                "skips-unsaved",
                "A buffer that is not saved with the model (persistent=False) is "
                "not in its state_dict; here one differs.",
                sees=lambda m: bits(m.state_dict().values()),
            ),
        ],
    )
)


# ---- 05.4 train_step -----------------------------------------------------------------------------

SIZES = "samples"


def batches(case: Case, rank: int) -> tuple:
    """Equal models and optimizers, and a batch of this rank's own; its size may be 0."""
    made, size = model(case, "all"), case.options[SIZES][rank]
    momentum = case.options.get("momentum", 0.0)
    if case.options.get("gradients") == "left over":
        give_gradients(made, case, rank)
    rng = case.random("batch", rank)
    rows = [[rng.randrange(-8, 9) / 8 for _ in range(2)] for _ in range(size)]
    x = torch.tensor(rows, dtype=getattr(torch, case.dtype)).reshape(size, 2)
    y = torch.tensor([rng.randrange(2) for _ in range(size)], dtype=torch.int64)
    return made, torch.optim.SGD(made.parameters(), lr=0.5, momentum=momentum), x, y


def step(
    given: list[tuple],
    weight: Callable[[int, int, int], float] = lambda size, whole, n: 1 / whole,
    counts: Callable[[int, int, int], float] = lambda size, whole, n: 1 / whole,
    own: bool = False,
    told: Callable[[float, int, int], float] | None = None,
) -> list[float]:
    """One process, the union of all batches: the gradient is the sum of all ranks' summed losses'
    by ``weight(size, whole, n)``, and the loss by ``counts``. ``told`` is a rank's own loss."""
    sizes, n, losses = [len(y) for *_, y in given], len(given), list[float]()
    for module, _, x, y in given:
        module.zero_grad()
        loss = nn.functional.cross_entropy(module(x), y, reduction="sum")
        (loss * weight(len(y), sum(sizes), n) if len(y) else loss).backward()
        losses.append(loss.item())
    if not own:
        average([(module,) for module, *_ in given], by=lambda n: 1)
    for _, optimizer, *_ in given:
        optimizer.step()
    each = list(zip(losses, sizes, strict=True))
    mean = sum(loss * counts(size, sum(sizes), n) for loss, size in each if size)
    return [told(loss, size, sum(sizes)) if told else mean for loss, size in each]


def mean_each(size: int, whole: int, n: int) -> float:
    return 1 / size / n


def step_case(kind: str, *sizes: int, **more: object) -> Case:
    dtype = str(more.pop("dtype", "float32"))
    return Case(len(sizes), dtype=dtype, options={"model": kind, SIZES: sizes, **more})


wrong = turned(step)
declare(
    Exercise(
        "05.4",
        "train_step",
        step,
        inputs=batches,
        words=WORDS,
        core=lambda rng: [
            *(step_case("one layer", *sizes) for sizes in ((2, 2), (1, 3), (3, 0))),
            *(step_case("two layers", *sizes) for sizes in ((2, 5, 1), (1, 1, 4, 2))),
            step_case("one layer", 0, 2, 1, gradients="left over"),
            step_case("one layer", 1, 3, gradients="left over"),
            step_case("two layers", 2, 3, momentum=0.9),
            step_case("two layers", *(rng.randrange(1, 6) for _ in range(5))),
        ],
        sturdy=lambda rng: [
            step_case("two layers", 3),
            step_case("two layers", 1, 2, 0, 4, 1, 1, 0, 3),
            step_case("two layers", 1, 2, dtype="float64"),
            step_case("first layer frozen", 2, 1),
            step_case("a shared weight", 2, 1),
            Case(2, layout="transposed", options={"model": "two layers", SIZES: (2, 1)}),
            Case(
                2, calls=2, options={"model": "one layer", SIZES: (2, 1)}, later=({SIZES: (1, 3)},)
            ),
        ],
        special=lambda case: (
            ({"an empty batch"} if 0 in case.options[SIZES] else set())
            | ({"batches of unequal size"} if len(set(case.options[SIZES])) > 1 else set())
        ),
        length_is="",
        tolerance=2e-5,
        free=["grad"],
        mistakes=[
            wrong(
                "no-step",
                "No weight has changed: nobody takes the step.",
                weight=lambda size, whole, n: 0,
            ),
            wrong(
                "steps-first",
                "Every rank has taken the step of its own batch, and the models part "
                "ways. What has to happen before the step?",
                {"own": True, "weight": lambda size, whole, n: 1 / size},
                {"own": True},
            ),
            wrong(
                "sum",
                "The step is n times too long: n means have been added up.",
                weight=lambda size, whole, n: 1 / size,
            ),
            wrong(
                "rank-count",
                "The step is wrong by a factor. Sums over samples go with the number "
                "of samples, means with the number of ranks.",
                {"weight": lambda size, whole, n: 1 / whole / n},
                {"weight": lambda size, whole, n: 1 / n},
                {"weight": lambda size, whole, n: 1.0},
            ),
            wrong(
                "mean-of-means",
                "A sample counts for more on a rank that has few of them: look at a "
                "batch of 1 beside one of 3.",
                weight=mean_each,
            ),
            wrong(
                "loss-mean-of-means",
                "The loss that is returned counts every rank equally, however many samples it has.",
                counts=mean_each,
            ),
            wrong(
                "local-loss",
                "The loss that is returned is this rank's, not everybody's.",
                {"told": lambda loss, size, whole: loss / max(1, size)},
                {"told": lambda loss, size, whole: loss / whole},
            ),
        ],
    )
)
