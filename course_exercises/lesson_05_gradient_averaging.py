"""Lesson 05: average gradients, begin alike, know whether all are alike, take one step together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from course_check.cases import Case, crowd
from course_exercises import gradients
from course_exercises.declare import exercise, unequal
from course_exercises.gradients import MISSING, state
from course_exercises.models import BUFFERS, SAMPLES, WORDS, batches, give_gradients, model


def list_models(*kinds: str, worlds: tuple[int, ...], **rest: Any) -> list[Case]:
    """A case for each kind of model and each world."""
    more = rest.pop("options", {})
    return [Case(w, options={"model": kind, **more}, **rest) for kind in kinds for w in worlds]


# ---- 05.1 average_gradients ----------------------------------------------------------------------

LACKS: dict[str, Callable[[int, int, int], bool]] = {  # parameter by number, rank, ranks
    "the first parameter on rank 0": lambda k, rank, n: k == rank == 0,
    "all parameters on the last rank": lambda k, rank, n: rank == n - 1,
    "the first parameter on any rank": lambda k, rank, n: k == 0,
}
ON_RANK_0, ON_THE_LAST, ON_ALL = ({MISSING: which} for which in LACKS)


def make_model_with_gradients(case: Case, rank: int) -> tuple:
    """A model with gradients, of which the case may take some away."""
    made = model(case, rank)
    give_gradients(made, case, rank)
    lacks = LACKS.get(case.options.get(MISSING, ""), lambda *_: False)
    for k, p in enumerate(made.parameters()):
        p.grad = None if lacks(k, rank, case.world) else p.grad
    return (made,)


exercise(
    "05.1 average_gradients",
    gradients.average,
    inputs=make_model_with_gradients,
    words=WORDS,
    core=lambda rng: [
        *list_models("one layer", worlds=(2, 3)),
        *list_models("two layers", worlds=(2, 5)),
        *list_models("one layer", worlds=(2,), options=ON_RANK_0),
        *list_models("two layers", worlds=(3,), options=ON_THE_LAST),
        *list_models("first layer frozen", "layers in layers", "a shared weight", worlds=(3,)),
    ],
    sturdy=lambda rng: [
        *list_models("two layers", worlds=(1, crowd(rng))),
        *list_models("two dtypes", worlds=(2,)),
        *list_models("two layers", worlds=(2,), dtype="bfloat16"),
        *list_models("two layers", worlds=(2,), dtype="float64", options=ON_RANK_0),
        *list_models("two layers", worlds=(2,), layout="transposed"),
        *list_models("two layers", worlds=(3,), calls=2),
        *list_models("buffers", worlds=(2,)),
        *list_models("two layers", worlds=(2,), options=ON_ALL),
    ],
    settle=gradients.zero_or_none,
    tolerance=1e-6,
    hints=gradients.HINTS
    | {
        "averages-weights": "The weights are averaged, or added up, and every rank keeps its own "
        "gradient. Which of a parameter's two tensors is to be the same for all?",
        "first-parameter": "Only the first gradient is averaged: does it visit all parameters?",
    },
    mistakes=gradients.MISTAKES
    | {
        "averages-weights": [{"of": "data"}, {"of": "data", "divisor": lambda n: 1}],
        "first-parameter": {"which": slice(1)},
    },
)


# ---- 05.2 broadcast_parameters -------------------------------------------------------------------


def make_model_and_src(case: Case, rank: int) -> tuple:
    """A model of each rank's own; the root is named only where the case names one."""
    made = model(case, rank)
    give_gradients(made, case, rank)
    return (made, case.options["src"]) if "src" in case.options else (made,)


def from_src(src: int, *kinds: str, world: int = 2, **rest: Any) -> list[Case]:
    """Cases in which src is this rank."""
    return list_models(*kinds, worlds=(world,), options={"src": src}, **rest)


exercise(
    "05.2 broadcast_parameters",
    gradients.broadcast,
    inputs=make_model_and_src,
    words=WORDS,
    core=lambda rng: [
        *list_models("one layer", "two layers", worlds=(2, 3)),
        *from_src(1, "one layer"),
        *from_src(rng.randrange(1, 5), "two layers", world=5),
        *from_src(1, "buffers", "first layer frozen", "a shared weight", "layers in layers"),
    ],
    sturdy=lambda rng: [
        *list_models("two layers", worlds=(1, crowd(rng))),
        *from_src(0, "two dtypes"),
        *from_src(1, "buffers", dtype="bfloat16"),
        *from_src(1, "buffers", numbers="large"),
        *from_src(0, "two layers", layout="transposed"),
        *from_src(1, "buffers", world=3, calls=2, later=({"src": 2},)),
    ],
    hints={"averages": "Every rank has the means over all ranks. Each should have src's values."},
    mistakes={"averages": {"averages": True}},
)


# ---- 05.3 same_everywhere ------------------------------------------------------------------------

FIRST = (0.5, -1.25, 0.75, 2.0)  # what the first parameter's numbers are, but for a difference
CHANGES: dict[str, tuple[float, ...]] = {  # what they are where it differs
    "another weight": (0.5, -1.25, 1.75, 2.0),
    "two weights swapped": (-1.25, 0.5, 0.75, 2.0),
    "another last bit": (0.5, -1.25, 0.75, 2.0000002384185791015625),
    "a NaN": (0.5, -1.25, float("nan"), 2.0),
}
IN_CORE = "another weight", "two weights swapped", "another last bit", "another last parameter"
BY, BUFFER, ON = "differs by", "another buffer", "on rank"
COUNTS = "mean", "count", "cache"  # its buffers


def make_nearly_alike(case: Case, rank: int) -> tuple:
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


def read_bits(tensors: Iterable[Tensor]) -> list:
    """The bytes of each tensor."""
    return [t.contiguous().reshape(-1).view(torch.uint8).tolist() for t in tensors]


def compare_models(
    given: list[tuple],
    sees: Callable[[nn.Module], list] = lambda m: read_bits(state(m)),
    returned: Callable[[list[bool], int], bool] = lambda equal, rank: all(equal),
) -> list[bool]:
    """Whether all models have the same bits. Mistakes see less of them, or tell fewer."""
    first, *others = [sees(module) for (module,) in given]
    equal = [True, *(first == other for other in others)]
    return [returned(equal, rank) for rank in range(len(given))]


def list_differing(kind: str, what: str, *worlds: int, **more: object) -> list[Case]:
    """A case for each world, in which one rank differs in this way."""
    return list_models(kind, worlds=worlds, options={BY: what, **more})


exercise(
    "05.3 same_everywhere",
    compare_models,
    inputs=make_nearly_alike,
    words=WORDS | {BUFFER: f"a buffer differs. {BUFFERS}"},
    core=lambda rng: [
        *list_differing("one layer", "nothing", 2, 3),
        *list_differing("buffers", "nothing", 3),
        *(case for what in IN_CORE for case in list_differing("one layer", what, 2)),
        *list_differing("one layer", "another weight", 3, 4),
        *list_differing("two layers", "another weight", 4, **{ON: 1}),
        *list_differing("first layer frozen", "another weight", 2),
        *(Case(2, options={"model": "buffers", BUFFER: f"counts.{k}"}) for k in COUNTS),
    ],
    sturdy=lambda rng: [
        *list_differing("one layer", "nothing", 1, crowd(rng)),
        *list_differing("two dtypes", "nothing", 2),
        *list_differing("one layer", "nothing, with a NaN", 2),
        *list_differing("one layer", "a NaN", 2),
        *list_differing("one layer", "another weight", 8),
        *list_models("two layers", worlds=(2,), layout="transposed", options={BY: "nothing"}),
        Case(
            3,
            calls=2,
            options={"model": "one layer", BY: "another weight"},
            later=({BY: "nothing"},),
        ),
    ],
    hints={
        "local": "Ranks come to different answers. What one rank has found out has to reach all "
        "the others.",
        "nan-differs": "A NaN is not equal to itself, but its bits are.",
        "sums": "Sums can be equal where the numbers are not: two weights may be swapped, or "
        "one may grow as much as another shrinks.",
        "tolerance": "Models that differ in the last bit pass as equal here. Training makes such a "
        "difference grow: compare every bit.",
        "skips-unsaved": "A buffer that is not saved with the model (persistent=False) is not in "
        "its state_dict; here one differs.",
    },
    mistakes={
        "local": {"returned": lambda equal, rank: equal[rank]},
        "nan-differs": {"sees": lambda m: [[float(v) for v in t.flatten()] for t in state(m)]},
        "sums": {"sees": lambda m: [t.double().sum().item() for t in state(m)]},
        "tolerance": {"sees": lambda m: [(t.double() * 1e4).round().tolist() for t in state(m)]},
        "skips-unsaved": {"sees": lambda m: read_bits(m.state_dict().values())},
    },
)


# ---- 05.4 train_step -----------------------------------------------------------------------------

Factor = Callable[[int, int, int], float]  # of a batch's size, the size of all, the ranks


def mean_of_all(size: int, whole: int, n: int) -> float:
    return 1 / whole


def mean_of_means(size: int, whole: int, n: int) -> float:
    return 1 / size / n


def take_step(
    given: list[tuple],
    gradient_factor: Factor = mean_of_all,
    loss_factor: Factor = mean_of_all,
    local_step: bool = False,
    local_loss: Callable[[float, int, int], float] | None = None,
) -> list[float]:
    """One process, the union of all batches: gradients and losses are sums over samples, times a
    factor, added up over the ranks."""
    sizes, n, losses = [len(y) for *_, y in given], len(given), list[float]()
    for module, _, x, y in given:
        module.zero_grad()
        loss = nn.functional.cross_entropy(module(x), y, reduction="sum")
        (loss * gradient_factor(len(y), sum(sizes), n) if len(y) else loss).backward()
        losses.append(loss.item())
    if not local_step:
        gradients.average([(module,) for module, *_ in given], divisor=lambda n: 1)
    for _, optimizer, *_ in given:
        optimizer.step()
    each = list(zip(losses, sizes, strict=True))
    if local_loss:
        return [local_loss(loss, size, sum(sizes)) for loss, size in each]
    return [sum(loss * loss_factor(size, sum(sizes), n) for loss, size in each if size)] * n


def step_case(kind: str, *sizes: int, **rest: Any) -> Case:
    """A case in which the ranks have batches of these sizes."""
    options = {"model": kind, SAMPLES: sizes} | rest.pop("options", {})
    return Case(len(sizes), options=options, **rest)


LEFT_OVER = {"gradients": "left over"}
exercise(
    "05.4 train_step",
    take_step,
    inputs=batches,
    words=WORDS,
    core=lambda rng: [
        *(step_case("one layer", *sizes) for sizes in ((2, 2), (1, 3), (3, 0))),
        *(step_case("two layers", *sizes) for sizes in ((2, 5, 1), (1, 1, 4, 2))),
        step_case("one layer", 0, 2, 1, options=LEFT_OVER),
        step_case("one layer", 1, 3, options=LEFT_OVER),
        step_case("two layers", 2, 3, options={"momentum": 0.9}),
        step_case("two layers", *(rng.randrange(1, 6) for _ in range(5))),
    ],
    sturdy=lambda rng: [
        step_case("two layers", 3),
        step_case("two layers", 1, 2, 0, 4, 1, 1, 0, 3),
        step_case("two layers", 1, 2, dtype="float64"),
        step_case("first layer frozen", 2, 1),
        step_case("a shared weight", 2, 1),
        step_case("two layers", 2, 1, layout="transposed"),
        step_case("one layer", 2, 1, calls=2, later=({SAMPLES: (1, 3)},)),
    ],
    special=lambda case: unequal(case.options[SAMPLES]),
    tolerance=2e-5,
    free=["grad"],
    hints={
        "no-step": "No weight has changed: nobody takes the step.",
        "steps-first": "Every rank has taken the step of its own batch, and the models part ways. "
        "What has to happen before the step?",
        "sum": "The step is n times too long: n means have been added up.",
        "rank-count": "The step is wrong by a factor. Divide sums over samples by the number "
        "of samples, and sums of means by the number of ranks.",
        "mean-of-means": "A sample counts for more on a rank that has few of them: look at a "
        "batch of 1 beside one of 3.",
        "loss-mean-of-means": "The loss that is returned counts every rank equally, however many "
        "samples it has.",
        "local-loss": "The loss that is returned is this rank's, not everybody's.",
    },
    mistakes={
        "no-step": {"gradient_factor": lambda size, whole, n: 0},
        "steps-first": [
            {"local_step": True, "gradient_factor": lambda size, whole, n: 1 / size},
            {"local_step": True},
        ],
        "sum": {"gradient_factor": lambda size, whole, n: 1 / size},
        "rank-count": [
            {"gradient_factor": lambda size, whole, n: 1 / whole / n},
            {"gradient_factor": lambda size, whole, n: 1 / n},
            {"gradient_factor": lambda size, whole, n: 1.0},
        ],
        "mean-of-means": {"gradient_factor": mean_of_means},
        "loss-mean-of-means": {"loss_factor": mean_of_means},
        "local-loss": [
            {"local_loss": lambda loss, size, whole: loss / max(1, size)},
            {"local_loss": lambda loss, size, whole: loss / whole},
        ],
    },
)
