"""Lesson 06: train under DistributedDataParallel; accumulate micro-batches and reduce once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial, reduce
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import DistributedSampler, TensorDataset

from course_exercises import lesson_05_gradient_averaging as by_hand
from course_exercises.models import model
from course_lib.checks.cases import Case, chunked, crowd, drawn, rows
from course_lib.checks.compare import same
from course_lib.checks.diagnose import OfPlay, found, only
from course_lib.checks.exercise import Diagnosis, Exercise, Finding, Mistake, Play, declare, turned
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


# ---- 06.1 train_ddp ------------------------------------------------------------------------------

ROUNDING = 2e-5
Number = Callable[..., Any]


def fitting(case: Case, rank: int) -> tuple:
    """A model of this rank's own, and a dataset that can be learnt, but for some of it."""
    made, o, x = model(case, rank), case.options, drawn(case, "inputs", case.length, 2)
    for p in made.parameters():
        p.data /= 16
    y = x[:, 0] + drawn(case, "noise", case.length) / 2 > x[:, 1]
    return made, TensorDataset(x, y.long()), o["epochs"], o["batch_size"], o["seed"]


def train(
    given: list[tuple],
    start: Callable[[list], None] = by_hand.spread,
    alone: bool = False,
    sampler: Callable[..., DistributedSampler] = DistributedSampler,
    salt: Callable[[int, int], int] = lambda seed, rank: seed,
    told: Callable[[int], int] = lambda epoch: epoch,
    cut: Callable[[Tensor, int], Sequence[Tensor]] = lambda shares, size: shares.split(size, 1),
    clears: Callable[[int], bool] = lambda step: True,
    follows: Number = Tensor.mean,
    rate: float = 0.5,
    momentum: float = 0.0,
    loss: Number = lambda losses, rank: torch.cat(losses, 1).mean(),
    accuracy: Number = lambda right, shares, rank, hits: right.mean(),
) -> list[dict[str, list[float]]]:
    """On every rank, one process that takes the batches of all. The rest are mistakes."""
    start([(m,) for m, *_ in given])
    out: list[dict[str, list[float]]] = []
    for rank, (m, data, epochs, size, seed) in enumerate(given):
        samplers = [sampler(data, len(given), r, seed=salt(seed, r)) for r in range(len(given))]
        (x, y), optimizer = data.tensors, SGD(m.parameters(), rate, momentum)
        out.append({"loss": [], "accuracy": []})
        for epoch in range(epochs):
            for each in samplers:
                each.set_epoch(told(epoch))
            shares = torch.tensor([[*each] for each in samplers])
            losses, hits = list[Tensor](), list[Tensor]()
            for step, batch in enumerate(cut(shares[[rank]] if alone else shares, size)):
                if clears(step):
                    m.zero_grad()
                logits = m.train()(x[batch]).flatten(0, 1)
                by_sample = cross_entropy(logits, y[batch].flatten(), reduction="none")
                follows(by_sample.view_as(batch)).backward()
                optimizer.step()
                losses.append(by_sample.detach().view_as(batch))
                hits.append((logits.argmax(1) == y[batch].flatten()).double().view_as(batch))
            right = (m.eval()(x).argmax(1) == y).double()
            out[-1]["loss"].append(float(loss(losses, rank)))
            out[-1]["accuracy"].append(float(accuracy(right, shares, rank, hits)))
    return out


def reports(key: str, ways: list[Number]) -> OfPlay:
    """The weights are right, and ``key`` is on every rank what one of these ways would report."""
    knobs: list[dict[str, Any]] = [{key: way} for way in ways]
    wrong = [partial(train, **knob) for knob in knobs]

    def when(play: Play) -> bool:
        if not play.done or "left" in play.wrong:
            return False
        got, want, *said = (
            [s.returned.get(key) if isinstance(s.returned, dict) else None for s in calls[0]]
            for calls in (play.seen, play.expected, *map(play.comes_to, wrong))
        )
        return not same(got, want, ROUNDING) and any(same(got, one, ROUNDING) for one in said)

    return when


def right_on_rank_0(play: Play) -> bool:
    return same(play.got(0).returned, play.expected[0][0].returned, ROUNDING)


def steps(play: Play, ranks: int) -> int:
    """How many it takes to draw the dataset once in each epoch, shared by so many ranks."""
    o = play.case.options
    return o["epochs"] * ceil(ceil(play.case.length / ranks) / o["batch_size"])


def gradients(play: Play) -> list[int]:
    """The bytes of each."""
    return [p.nbytes for p in play.given(0).parameters() if p.requires_grad]


def whole(play: Play, rank: int) -> int:
    """How often this rank reduces all gradients in one call, as DDP does in each step."""
    return [e.nbytes for e in carried(play, rank, "all_reduce")].count(sum(gradients(play)))


def reduced_by_ddp(play: Play) -> Iterator[Finding]:
    """DDP, which compares shapes at its start, reduces all gradients once in each step, and nobody
    sends them one by one."""
    want, each = steps(play, play.case.world), gradients(play)
    for rank in range(play.case.world):
        got, calls = whole(play, rank), [e.nbytes for e in carried(play, rank, *SUMS)]
        compares = any(e.dtype == "int64" for e in trace_of(play).of(rank))
        one_by_one = all(calls.count(size) >= want * each.count(size) for size in each)
        if got != want or one_by_one or not compares:
            text = f"in {want} steps rank {rank} reduces all gradients at once {got} times"
            yield Finding("by-hand", f"{text}, and makes {len(calls) - got} other calls", rank)


REPORTS: list[tuple] = [  # what is reported in place of the right number
    (
        "padding-counted",
        "Samples count twice: the sampler gives some out twice. Or do all ranks count the same?",
        "accuracy",
        lambda right, shares, rank, hits: right.mean() * len(shares),
        lambda right, shares, rank, hits: right[shares].mean(),
        lambda right, shares, rank, hits: right[shares].sum() / len(right),
        lambda right, shares, rank, hits: right[torch.arange(shares.numel()) % len(right)].mean(),
    ),
    (
        "mean-of-ranks",
        "A sample counts for more in a small share. Add up the counts, then divide once.",
        "accuracy",
        lambda right, shares, rank, hits: (
            sum(right[r :: len(shares)].mean() for r in range(len(shares))) / len(shares)
        ),
    ),
    (
        "local-accuracy",
        "Each rank reports the accuracy of its own share. Add up the counts of all ranks.",
        "accuracy",
        lambda right, shares, rank, hits: right[rank :: len(shares)].mean(),
        lambda right, shares, rank, hits: right[rank :: len(shares)].sum() / len(right),
        lambda right, shares, rank, hits: right[shares[rank]].mean(),
    ),
    (
        "while-training",
        "Counted in the training steps; the model at the end of the epoch is to be evaluated.",
        "accuracy",
        lambda right, shares, rank, hits: torch.cat(hits, 1).mean(),
        lambda right, shares, rank, hits: torch.cat(hits, 1)[rank].mean(),
    ),
    (
        "local-loss",
        "Each rank reports the loss of its own samples only.",
        "loss",
        lambda losses, rank: torch.cat(losses, 1)[rank].mean(),
    ),
    (
        "mean-of-batches",
        "A smaller last batch counts as much as a full one: take the mean over the samples.",
        "loss",
        lambda losses, rank: sum(each.mean() for each in losses) / len(losses),
        lambda losses, rank: sum(each[rank].mean() for each in losses) / len(losses),
    ),
]
STEPS: list[tuple] = [  # how else the weights may come about
    (
        "not-averaged",
        "The ranks end with different weights. Which module is called, the model or DDP?",
        {"alone": True},
        {"alone": True, "start": lambda models: None},
    ),
    (
        "no-set-epoch",
        "The order is that of another epoch. What is the sampler told before each? (At first 0.)",
        {"told": lambda epoch: 0},
        {"told": lambda epoch: epoch + 1},
    ),
    (
        "sampler",
        "Other samples meet. Does the sampler shuffle, by the seed, on all ranks the same?",
        {"salt": lambda seed, rank: 0},
        {"salt": lambda seed, rank: seed + rank},
        {"sampler": partial(DistributedSampler, shuffle=False)},
    ),
    (
        "batches",
        "Batches have another size: batch_size is that of one rank, and the last one stays.",
        {"sampler": partial(DistributedSampler, drop_last=True)},
        {"cut": lambda shares, size: shares[:, : len(shares[0]) // size * size].split(size, 1)},
        {"cut": lambda shares, size: shares.split(max(1, size // len(shares)), 1)},
    ),
    (
        "no-zero-grad",
        "No zero_grad() comes between the steps, and backward() adds.",
        {"clears": lambda step: False},
        {"clears": lambda step: step == 0},
    ),
    (
        "another-step",
        "The steps are others: the text names rate and momentum, and DDP divides by the ranks.",
        {"momentum": 0.9},
        {"follows": lambda losses: losses.sum(1).mean()},
        {"follows": lambda losses: losses.mean(1).sum()},
        {"follows": lambda losses: losses.mean() / len(losses)},
        *({"rate": rate} for rate in (0.0, 1e-3, 0.01, 0.1)),
    ),
]
trainings = partial(rows, "model epochs batch_size seed")
declare(
    Exercise(
        "06.1",
        "train_ddp",
        train,
        inputs=fitting,
        core=lambda rng: trainings(
            (2, 16, "two layers", 3, 3, 1),
            (2, 13, "two layers", 3, 3, 4),
            (3, 20, "two layers", 3, 2, rng.randrange(2, 1000)),
            (4, rng.choice((25, 26, 27)), "four layers", 2, 3, 6),
            (5, rng.randrange(21, 25), "two layers", 2, 2, 3),
        ),
        sturdy=lambda rng: trainings(
            (1, 11, "two layers", 2, 4, 5),
            (8, 37, "two layers", 2, 2, 6),
            (3, 2, "two layers", 2, 16, 2),
            (2, 9, "first layer frozen", 2, 2, 3),
            (2, 18, "dropout", 3, 2, 8),
            (2, 12, "buffers", 2, 3, 9),
        ),
        special=chunked,
        free=["grad", "flag"],
        tolerance=ROUNDING,
        length_is="samples",
        blank=False,
        budget=[reduced_by_ddp],
        diagnoses=[
            Diagnosis(
                "whole-set",
                "Every rank draws the whole dataset. What gives each a share of its own?",
                lambda p: p.done and whole(p, 0) == steps(p, 1) > steps(p, p.case.world),
            ),
            Diagnosis(
                "uneven-shares",
                "Some rank takes a step more than another, and waits in it for ever.",
                lambda p: found("Deadlock", "Mismatch")(p) and p.case.length % p.case.world > 0,
            ),
            Diagnosis(
                "rank-0-only",
                "Rank 0 has the right numbers, and others do not. Who tells them?",
                lambda p: p.wrong == ["returned"] and right_on_rank_0(p),
            ),
            *(Diagnosis(id, hint, reports(key, ways)) for id, hint, key, *ways in REPORTS),
            Diagnosis(
                "by-hand",
                "The answer's own calls average the gradients, which DDP does in backward().",
                only("by-hand"),
            ),
        ],
        mistakes=[
            *(turned(train)(*known) for known in STEPS),
            Mistake(
                "copy",
                "The model itself has not changed: another one has been trained, or a copy.",
                (lambda given: train(deepcopy(given)),),
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
    for module, _, micro, _ in given:
        trained = [p for p in module.parameters() if p.requires_grad]
        each = [cross_entropy(module(x), y) for x, y in micro]
        parts = [torch.autograd.grad(loss / len(micro), trained) for loss in each]
        gradients.append(torch.stack([torch.cat([g.flatten() for g in part]) for part in parts]))
        losses.append(torch.stack(each).detach())
    for module, optimizer, _, norm in given:
        mean = torch.stack([own(parts, norm) for parts in gradients]).mean(0)
        mean = mean / len(given) if divided == "before" else mean
        trained = [p for p in module.parameters() if p.requires_grad]
        step = end(mean, norm) / (len(given) if divided == "after" else 1)
        whole = step.split([p.numel() for p in trained])
        for p, part in zip(trained, whole, strict=True):
            p.grad = part.view_as(p)
        optimizer.step()
    return [float(told(torch.stack(losses), rank)) for rank in range(len(given))]


def accumulating(case: Case, rank: int) -> tuple:
    options = {"model": "buffers", by_hand.SIZES: (2,) * case.world} | case.options
    each = [
        by_hand.batches(replace(case, seed=case.seed + k, options=options), rank)
        for k in range(case.length)
    ]
    module, optimizer, *_ = each[0]
    for p in module.parameters():
        p.data /= 32
    return module, optimizer, [(x, y) for *_, x, y in each], case.options["max_norm"]


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


clippings = partial(rows, "max_norm")
wrong = turned(accumulate)
declare(
    Exercise(
        "06.2",
        "accumulate_step",
        accumulate,
        inputs=accumulating,
        core=lambda rng: clippings(
            (2, 2, 100.0), (2, 3, 0.1), (3, 2, 0.05), (3, 4, 9.0), (4, 3, 0.2), (5, 2, 0.1)
        ),
        sturdy=lambda rng: [
            *clippings((1, 3, 0.1), (crowd(rng), 2, 0.1), (3, 1, 0.1)),
            *clippings((3, 2, 0.1), dtype="float64"),
            *clippings((2, 2, 0.1), options={"model": "first layer frozen"}),
            *clippings((2, 2, 100.0), options={"gradients": "left over"}),
            *clippings((2, 2, 100.0), calls=2),
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
