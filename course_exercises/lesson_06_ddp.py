"""Lesson 06: train under DistributedDataParallel; accumulate micro-batches and reduce once.

``train_ddp`` chooses its own model, so its numbers are compared with what that model was seen to
do: the dataset watches, and an Account of it says what was drawn, lost and recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial, reduce
from itertools import dropwhile, pairwise, takewhile
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_exercises.lesson_05_gradient_averaging import SIZES, batches
from course_lib.beside.seen import Seen
from course_lib.beside.watched import Watched
from course_lib.checks.cases import Case, chunked, crowd, rows
from course_lib.checks.compare import ANYTHING, same
from course_lib.checks.diagnose import OfPlay, found, only
from course_lib.checks.exercise import Diagnosis, Exercise, Finding, Play, declare, turned
from course_lib.checks.rules import trace_of
from course_lib.trace import Event

CLOSE = 1e-4
SUMS = "reduce", "gather", "all_to_all", "send"  # calls of which a sum can be made


def carried(play: Play, rank: int, *ops: str) -> list[Event]:
    """This rank's calls that may carry gradients; DDP broadcasts weights when it is made."""
    return [
        e
        for e in trace_of(play).of(rank)
        if str(e.dtype).startswith(("float", "bfloat")) and any(op in e.op for op in ops)
    ]


def in_numbers(calls: list[Event]) -> int:
    return sum(e.nbytes // getattr(torch, str(e.dtype)).itemsize for e in calls)


def mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else float("nan")


# ---- 06.1 train_ddp ------------------------------------------------------------------------------


def training(case: Case, rank: int) -> tuple:
    source, o = torch.Generator().manual_seed(case.length), case.options
    images = torch.randint(17, (case.length, 1, 8, 8), generator=source) / 16
    labels = torch.randint(10, (case.length,), generator=source)
    return Watched(images, labels), o["epochs"], o["batch_size"], o["seed"]


class Account:
    """What the ranks' models were shown in a call: in the steps of an epoch, and between its last
    one and the next. No epochs if some rank's steps are no multiple of them."""

    def __init__(self, labels: Tensor, epochs: int, by_rank: list[list[dict[str, Any]]]) -> None:
        self.labels, self.ranks = labels, range(len(by_rank))
        self.steps = [[p for p in passes if p["trained"]] for passes in by_rank]
        told = bool(by_rank) and all(mine and len(mine) % epochs == 0 for mine in self.steps)
        self.epochs = range(epochs if told else 0)
        self.passes = by_rank

    def trained(self, epoch: int, rank: int) -> list[dict[str, Any]]:
        each = len(self.steps[rank]) // len(self.epochs)
        return self.steps[rank][epoch * each : (epoch + 1) * each]

    def evaluated(self, epoch: int, rank: int) -> list[dict[str, Any]]:
        """What comes after the epoch's last step, as far as the next one."""
        last = self.trained(epoch, rank)[-1]
        _, *later = dropwhile(lambda p: p is not last, self.passes[rank])
        return list(takewhile(lambda p: not p["trained"], later))

    def drawn(self, epoch: int) -> list[list[int]]:
        return [[i for p in self.trained(epoch, r) for i in p["samples"]] for r in self.ranks]

    def losses(self, epoch: int, rank: int) -> list[list[float]]:
        """Of each batch those of its samples."""
        return [
            cross_entropy(p["logits"], self.labels[p["samples"]], reduction="none").tolist()
            for p in self.trained(epoch, rank)
        ]

    def hits(self, epoch: int, *ranks: int) -> list[tuple[int, bool]]:
        """Of each sample that these ranks, or all, have evaluated, whether it was recognised."""
        return [
            hit
            for r in ranks or self.ranks
            for p in self.evaluated(epoch, r)
            for hit in zip(
                p["samples"],
                (p["logits"].argmax(1) == self.labels[p["samples"]]).tolist(),
                strict=True,
            )
        ]

    def rate(self, epoch: int, *ranks: int) -> float:
        return mean(hit for _, hit in self.hits(epoch, *ranks))

    def numbers(self) -> dict[str, Any]:
        """What is to be reported."""
        accuracy = [mean(dict(self.hits(e)).values()) for e in self.epochs]
        losses = [
            mean(v for r in self.ranks for batch in self.losses(e, r) for v in batch)
            for e in self.epochs
        ]
        return {"loss": losses or ANYTHING, "accuracy": accuracy or ANYTHING}


def account(play: Play, call: int = 0) -> Account:
    return Account(
        play.inputs[call][0][0].tensors[1],
        play.case.options["epochs"],
        [seen.args[0]["passes"] for seen in (play.seen[call] if play.done else [])],
    )


def as_watched(want: list[Seen], got: list[Seen]) -> list[Seen]:
    """What the ranks are to report of the forward passes that were seen."""
    data, epochs, *_ = want[0].args
    numbers = Account(data["labels"], epochs, [g.args[0]["passes"] for g in got]).numbers()
    for mine, theirs in zip(want, got, strict=True):
        mine.args[0]["passes"], mine.returned = theirs.args[0]["passes"], numbers
    return want


def trained_well(play: Play) -> Iterator[Finding]:
    """What is asked of training and evaluation, but for the numbers; of each kind the first."""
    a, case, said = account(play), play.case, dict[str, str]()
    tell, batch, spare = said.setdefault, case.options["batch_size"], -case.length % case.world
    for rank, steps in enumerate(a.steps):
        if not steps or not a.epochs:
            tell(
                "steps" if steps else "never-steps",
                f"rank {rank} trains in {len(steps)} steps, in {case.options['epochs']} epochs",
            )
        if (largest := max((len(p["samples"]) for p in steps), default=0)) > batch:
            tell(
                "batch-too-large",
                f"rank {rank} trains on {largest} samples at once; batch_size is {batch}",
            )
        for number, (one, other) in enumerate(pairwise(steps), 2):
            if other["stale"] and one["weights"] != other["weights"]:
                tell("no-zero-grad", f"rank {rank}: step {number} finds earlier steps' gradients")
    if len({p["by chance"] for steps in a.steps for p in steps}) > 1:
        tell("training-mode", "some steps are taken with dropout, and others without it")
    for epoch in a.epochs:
        drawn = [i for rank in a.drawn(epoch) for i in rank]
        if (twice := len(drawn) - len(set(drawn))) > spare:
            tell(
                "overlap",
                f"in epoch {epoch} {twice} draws repeat a sample; shares of equal size "
                f"need {spare}",
            )
        if (missed := case.length - len(set(drawn))) >= case.world * batch:
            tell("missed", f"in epoch {epoch} {missed} samples are never drawn")
        if epoch and a.drawn(epoch) == a.drawn(0) and max(map(len, a.drawn(0))) > 3:
            tell("no-set-epoch", f"epoch {epoch} draws the samples in the order of epoch 0")
        if (shown := len(dict(a.hits(epoch)))) < case.length:
            tell("not-evaluated", f"epoch {epoch} evaluates {shown} of {case.length} samples")
        for passes in (a.trained, a.evaluated):
            first, *others = [p[0]["weights"] for r in a.ranks if (p := passes(epoch, r))] or [[]]
            if not all(same(weights, first, 1e-5) for weights in others):
                tell("not-averaged", f"in epoch {epoch} two ranks have different weights")
        for mine in (a.trained(epoch, r) for r in a.ranks):
            if len(mine) > 1 and all(p["weights"] == mine[0]["weights"] for p in mine):
                tell("never-steps", f"in epoch {epoch} no weight changes from batch to batch")
        if any(p["by chance"] for r in a.ranks for p in a.evaluated(epoch, r)):
            tell("training-mode", "the accuracy is of a model whose dropout, or BatchNorm, is on")
    yield from (Finding(kind, text) for kind, text in said.items())


def from_seed(play: Play) -> Iterator[Finding]:
    """Weights and order come from the seed: another one gives others, the same one the same."""
    seeds = [args[0][3] for args in play.inputs]
    accounts = [account(play, call) for call in range(play.case.calls)]
    made = [
        (a.steps[0][0]["weights"], a.drawn(0))
        for a in accounts
        if all(each.epochs for each in accounts)
    ]
    for seed, other in zip(seeds[1:], made[1:], strict=False):
        alike = [one == two for one, two in zip(made[0], other, strict=True)]
        if {*alike} != {seed == seeds[0]}:
            weights, order = ("same" if same else "other" for same in alike)
            yield Finding(
                "seed",
                f"called with seed {seeds[0]}, then {seed}: {weights} weights at "
                f"the start, {order} order of samples",
            )


def reduced_by_ddp(play: Play) -> Iterator[Finding]:
    """Each step reduces one gradient's worth; what is left is for losses and counts."""
    if not (a := account(play)).epochs:
        return
    for rank, passes in enumerate(a.steps):
        if lost := [k for k, p in enumerate(passes, 1) if not p["under ddp"]]:
            yield Finding(
                "by-hand",
                f"rank {rank}'s step {lost[0]} goes through no "
                "DistributedDataParallel, or lies in its no_sync",
                rank,
            )
    size, steps = a.steps[0][0]["gradient bytes"], max(map(len, a.steps))
    for rank in a.ranks:
        got, most = sum(e.nbytes for e in carried(play, rank, *SUMS)), steps * (size + 256) + 8192
        if got > most:
            text = f"rank {rank}'s calls carry {got} bytes in {steps} steps, the gradients {size}"
            yield Finding("by-hand", text, rank, got, most)


def reports(key: str, *ways: Callable[[Account, int, int], float]) -> OfPlay:
    """``key`` is wrong, and on every rank, epoch by epoch, what one of the ways would give."""

    def when(play: Play) -> bool:
        a = account(play)
        returned = [s.returned for s in play.seen[0]] if a.epochs else []
        got = [value.get(key) if isinstance(value, dict) else None for value in returned]
        said = [[[float(way(a, e, r)) for e in a.epochs] for r in a.ranks] for way in ways]
        wrong = bool(got) and not same(got, [a.numbers()[key]] * len(got), CLOSE)
        return wrong and any(same(got, by_rank, CLOSE) for by_rank in said)

    return when


trainings = partial(rows, "batch_size epochs seed")
FOUND = {  # hints by what is found; in this order, as one brings others with it
    "overlap": "Ranks draw the same samples. What gives each rank a share of its own? And do all "
    "ranks shuffle alike before they take it?",
    "no-set-epoch": "Two epochs draw the samples in the same order. Are they shuffled, and what "
    "tells the sampler, in time, that another epoch has begun?",
    "never-steps": "Is step() called after each batch, for the parameters of this model?",
    "no-zero-grad": "No zero_grad() comes between the steps, and backward() adds.",
    "not-averaged": "The gradients stay on the rank that made them, and each rank trains a model "
    "of its own. Which module has to be called for them to be averaged?",
    "not-evaluated": "All samples belong between an epoch's last step and the next one.",
    "training-mode": "Which calls switch a model between training and evaluation?",
    "seed": "The weights at the start and the order of the samples come from the seed, and from "
    "it alone: the same seed gives the same training, and another seed another one.",
}
REPORTS: list[tuple] = [  # what of an Account is reported for an epoch, by a rank
    (
        "padding-counted",
        "accuracy",
        "The sampler fills the last shares up with samples that it has "
        "given out already, and the accuracy counts them again.",
        lambda a, e, r: a.rate(e),
        lambda a, e, r: sum(hit for _, hit in a.hits(e)) / len(a.labels),
    ),
    (
        "mean-of-ranks",
        "accuracy",
        "The ranks' accuracies are averaged, and their shares differ in "
        "size: a sample counts for more in a small one. Add up the counts, then divide once.",
        lambda a, e, r: mean(a.rate(e, k) for k in a.ranks),
    ),
    (
        "local-accuracy",
        "accuracy",
        "Each rank reports the accuracy over its own share; the counts "
        "have to be added up over the ranks before they are divided.",
        lambda a, e, r: a.rate(e, r),
    ),
    (
        "local-loss",
        "loss",
        "Each rank reports the loss of its own samples only.",
        lambda a, e, r: mean(v for batch in a.losses(e, r) for v in batch),
    ),
    (
        "mean-of-batches",
        "loss",
        "A smaller last batch counts as much as a full one: the mean over "
        "samples is asked for, not the mean of the batches' means.",
        lambda a, e, r: mean(map(mean, a.losses(e, r))),
        lambda a, e, r: mean(mean(map(mean, a.losses(e, k))) for k in a.ranks),
    ),
]


declare(
    Exercise(
        "06.1",
        "train_ddp",
        lambda given: [{"loss": ANYTHING, "accuracy": ANYTHING}] * len(given),
        inputs=training,
        settle=as_watched,
        core=lambda rng: trainings(
            (2, 16, 4, 2, 0),
            (2, 13, 3, 3, 1),
            (3, 20, 4, 2, rng.randrange(2, 1000)),
            (4, 4 * rng.randrange(4, 7) + 1, 2, 5, 6),
            (5, rng.randrange(21, 25), 2, 2, 3),
        ),
        sturdy=lambda rng: [
            *trainings(
                (1, 11, 4, 2, 5),
                (crowd(rng), 19, 2, 2, 6),
                (3, 7, 16, 2, 0),
                (2, 9, 1, 1, rng.randrange(99)),
            ),
            *trainings((2, 8, 16, 2, 7), calls=3, later=({"seed": 8}, {"seed": 7})),
        ],
        smaller=lambda case: [
            replace(case, world=w, length=n)
            for w in (2, case.world)
            for n in (5, 8, 9)
            if case.calls == 1
        ],
        special=chunked,
        fits=lambda case: 1 < case.world <= case.length,
        tolerance=CLOSE,
        length_is="samples",
        blank=False,
        rules=[trained_well, from_seed],
        budget=[reduced_by_ddp],
        diagnoses=[
            Diagnosis(
                "uneven-shares",
                "Where samples cannot be divided evenly, one rank takes a step "
                "more than another, and waits in it for a rank that never comes.",
                lambda p: found("Deadlock", "Mismatch")(p) and p.case.length % p.case.world > 0,
            ),
            *(Diagnosis(id, hint, found(id)) for id, hint in FOUND.items()),
            *(Diagnosis(id, hint, reports(key, *ways)) for id, key, hint, *ways in REPORTS),
            Diagnosis(
                "by-hand",
                "The answer's own calls average the gradients. The exercise asks for "
                "DistributedDataParallel, which sends them while backward() is still running: "
                "when it returns, they have been averaged.",
                only("by-hand"),
            ),
        ],
    )
)


# ---- 06.2 accumulate_step ------------------------------------------------------------------------


def clip(gradient: Tensor, norm: float) -> Tensor:
    return gradient * min(1.0, norm / (float(gradient.norm()) + 1e-6))


def accumulate(
    given: list[tuple],
    own: Callable[[Tensor, float], Tensor] = lambda parts, norm: parts.sum(0),
    end: Callable[[Tensor, float], Tensor] = clip,
    told: Callable[[Tensor, int], Tensor] = lambda losses, rank: losses.mean(),
    divided: str = "",
) -> list[float]:
    """One step along the clipped mean gradient of all ranks' micro-batches. The rest are mistakes.

    ``own`` makes one gradient of a rank's micro-batches, each divided by their number; ``end``
    what is stepped along, of the mean over the ranks.
    """
    gradients, losses = [], []
    for model, _, micro, _ in given:
        trained = [p for p in model.parameters() if p.requires_grad]
        each = [cross_entropy(model(x), y) for x, y in micro]
        parts = [torch.autograd.grad(loss / len(micro), trained) for loss in each]
        gradients.append(torch.stack([torch.cat([g.flatten() for g in part]) for part in parts]))
        losses.append(torch.stack(each).detach())
    for model, optimizer, _, norm in given:
        mean = torch.stack([own(parts, norm) for parts in gradients]).mean(0)
        mean = mean / len(given) if divided == "before" else mean
        trained = [p for p in model.parameters() if p.requires_grad]
        step = end(mean, norm) / (len(given) if divided == "after" else 1)
        whole = step.split([p.numel() for p in trained])
        for p, part in zip(trained, whole, strict=True):
            p.grad = part.view_as(p)
        optimizer.step()
    return [float(told(torch.stack(losses), rank)) for rank in range(len(given))]


def accumulating(case: Case, rank: int) -> tuple:
    options = {"model": "buffers", SIZES: (2,) * case.world} | case.options
    each = [
        batches(replace(case, seed=case.seed + k, options=options), rank)
        for k in range(case.length)
    ]
    model, optimizer, *_ = each[0]
    for p in model.parameters():
        p.data /= 32
    return model, optimizer, [(x, y) for *_, x, y in each], case.options["max_norm"]


def reduced_once(play: Play) -> Iterator[Finding]:
    """The gradients are reduced once: as many numbers as they have."""
    size = sum(p.numel() for p in play.given(0).parameters() if p.requires_grad)
    for rank in range(play.case.world):
        reduced, all_told = (in_numbers(carried(play, rank, *o)) for o in (("reduce",), SUMS))
        if reduced > size + 4 + 2 * play.case.length:  # some for the losses
            text = f"rank {rank} reduces {reduced} numbers, the gradients have {size}"
            yield Finding("syncs-each", text, rank, reduced, size)
        elif all_told > size + 4 + max(2, play.case.world) * play.case.length:
            text = f"rank {rank}'s calls carry {all_told} numbers, the gradients have {size}"
            yield Finding("gathers", text, rank, all_told, size)
        elif all_told < size and play.case.world > 1:  # they travel as objects, or are broadcast
            text = f"rank {rank} reduces {all_told} numbers, the gradients have {size}"
            yield Finding("gathers", text, rank, all_told, size)


def weights(play: Play, rank: int) -> dict[str, Any]:
    return {k: v for k, v in play.got(rank).args[0].items() if not k.endswith("grad")}


steps = partial(rows, "max_norm")
wrong = turned(accumulate)
declare(
    Exercise(
        "06.2",
        "accumulate_step",
        accumulate,
        inputs=accumulating,
        core=lambda rng: steps(
            (2, 2, 100.0), (2, 3, 0.1), (3, 2, 0.05), (3, 4, 9.0), (4, 3, 0.2), (5, 2, 0.1)
        ),
        sturdy=lambda rng: [
            *steps((1, 3, 0.1), (crowd(rng), 2, 0.1), (3, 1, 0.1)),
            *steps((3, 2, 0.1), dtype="float64"),
            *steps((2, 2, 0.1), options={"model": "first layer frozen"}),
            *steps((2, 2, 100.0), options={"gradients": "left over"}),
            *steps((2, 2, 100.0), calls=2),
        ],
        free=["grad"],
        ddp=True,
        tolerance=CLOSE,
        length_is="micro-batches",
        fits=lambda case: case.world > 1 and case.length > 1,
        budget=[reduced_once],
        special=lambda case: {0: {"empty"}, 1: {"one micro-batch"}}.get(case.length, set()),
        diagnoses=[
            Diagnosis(
                "stays-local",
                "The ranks end with different weights: gradients, or a step, stay "
                "on a rank. DDP reduces in a backward whose forward went through DDP itself, not "
                "the module inside it, and outside no_sync.",
                lambda p: (
                    p.done
                    and not all(
                        same(weights(p, r), weights(p, 0), CLOSE) for r in range(p.case.world)
                    )
                ),
            ),
            Diagnosis(
                "syncs-each",
                "The gradients are reduced more than once in this step. It is the "
                "forward pass that settles whether its backward reduces: which ones lie outside "
                "no_sync?",
                only("syncs-each"),
            ),
            Diagnosis(
                "gathers",
                "The gradients of all ranks are sent to one rank, or to each, which "
                "adds them up by itself. A reduction adds on the way, and each rank is sent one "
                "sum.",
                only("gathers"),
            ),
        ],
        mistakes=[
            wrong(
                "unscaled",
                "The gradients of the micro-batches are added up, so the step is that of "
                "their sum. A mean over all samples is asked for.",
                own=lambda parts, norm: len(parts) * parts.sum(0),
            ),
            wrong(
                "divided-again",
                "DDP's gradients are means over the ranks already, and these are "
                "divided by the number of ranks once more.",
                {"divided": "before"},
                {"divided": "after"},
            ),
            wrong(
                "only-last",
                "Only the last micro-batch has a part in the step.",
                {"own": lambda parts, norm: parts[-1]},
                {"own": lambda parts, norm: len(parts) * parts[-1]},
            ),
            wrong(
                "clips-too-soon",
                "What is clipped is one rank's own gradient, or a part of it. The "
                "norm that counts is that of the average over all ranks and micro-batches.",
                {"own": lambda parts, norm: clip(parts.sum(0), norm), "end": lambda g, norm: g},
                {"own": lambda parts, norm: reduce(lambda sum, g: clip(sum, norm) + g, parts)},
            ),
            wrong(
                "never-clips",
                "The step is as long as the gradient is; max_norm has no part in it.",
                end=lambda g, norm: g,
            ),
            wrong("no-step", "The weights are as they were.", end=lambda g, norm: 0 * g),
            wrong(
                "local-loss",
                "Each rank returns the loss of its own micro-batches.",
                told=lambda losses, rank: losses[rank].mean(),
            ),
            wrong(
                "last-loss",
                "The loss that comes back is that of the last micro-batch.",
                {"told": lambda losses, rank: losses[rank, -1]},
                {"told": lambda losses, rank: losses[:, -1].mean()},
            ),
            wrong(
                "sum-of-losses",
                "The losses are added up; their mean is asked for, over the "
                "micro-batches and over the ranks.",
                {"told": lambda losses, rank: losses[rank].sum()},
                {"told": lambda losses, rank: losses.sum()},
                {"told": lambda losses, rank: losses.mean(1).sum()},
                {"told": lambda losses, rank: losses.mean(0).sum()},
            ),
        ],
    )
)
