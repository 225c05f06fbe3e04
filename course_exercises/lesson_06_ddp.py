"""Lesson 06: train under DistributedDataParallel; accumulate micro-batches and reduce once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial, reduce
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import DistributedSampler, TensorDataset

from course_check.cases import Case, chunked, crowd, drawn, rows
from course_check.compare import same
from course_check.exercise import Finding, Play
from course_check.usual_diagnoses import OfPlay, found
from course_exercises.declare import Mistakes, each, exercise
from course_exercises.gradients import broadcast
from course_exercises.models import SAMPLES, WORDS, batches, model
from course_lib.trace import Event

CLOSE = 1e-4
SUMS = "reduce", "gather", "all_to_all", "send"  # calls of which a sum can be made


def find_calls(play: Play, rank: int, *ops: str) -> list[Event]:
    """This rank's calls that may carry gradients: those in their dtype, if there are any, as
    metrics may travel in another. DDP broadcasts weights when it is made."""
    mine = [e for e in play.trace.of(rank) if any(op in e.op for op in ops)]
    floats = [e for e in mine if str(e.dtype).startswith(("float", "bfloat"))]
    return [e for e in floats if e.dtype == play.case.dtype] or floats


def count_numbers(calls: list[Event]) -> int:
    """How many numbers these calls carry."""
    return sum(e.nbytes // getattr(torch, str(e.dtype)).itemsize for e in calls)


# ---- 06.1 train_ddp ------------------------------------------------------------------------------

ROUNDING = 2e-5
Number = Callable[..., Any]


def make_training(case: Case, rank: int) -> tuple:
    """A model of this rank's own, and a dataset that can be learnt, but for some of it."""
    made, o, x = model(case, rank), case.options, drawn(case, "inputs", case.length, 2)
    for p in made.parameters():
        p.data /= 16
    y = x[:, 0] + drawn(case, "noise", case.length) / 2 > x[:, 1]
    return made, TensorDataset(x, y.long()), o["epochs"], o["batch_size"], o["seed"]


def train(
    given: list[tuple],
    start: Callable[[list], None] = broadcast,
    of: Callable[[list], list] = lambda given: given,
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
    given = of(given)
    start([(m,) for m, *_ in given])
    out: list[dict[str, list[float]]] = []
    for rank, (m, data, epochs, size, seed) in enumerate(given):
        samplers = [sampler(data, len(given), r, seed=salt(seed, r)) for r in range(len(given))]
        (x, y), optimizer = data.tensors, SGD(m.parameters(), rate, momentum)
        out.append({"loss": [], "accuracy": []})
        for epoch in range(epochs):
            for one in samplers:
                one.set_epoch(told(epoch))
            shares = torch.tensor([[*one] for one in samplers])
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
    wrong = [partial(train, **way) for way in each(**{key: ways})]

    def when(play: Play) -> bool:
        if not play.done or "left" in play.wrong:
            return False
        got, want, *said = (
            [s.returned.get(key) if isinstance(s.returned, dict) else None for s in calls[0]]
            for calls in (play.seen, play.expected, *map(play.comes_to, wrong))
        )
        return not same(got, want, ROUNDING) and any(same(got, one, ROUNDING) for one in said)

    return when


def is_right_on_rank_0(play: Play) -> bool:
    return same(play.got(0).returned, play.expected[0][0].returned, ROUNDING)


def count_steps(play: Play, ranks: int) -> int:
    """How many it takes to draw the dataset once in each epoch, shared by so many ranks."""
    o = play.case.options
    return o["epochs"] * ceil(ceil(play.case.length / ranks) / o["batch_size"])


def list_bytes(play: Play) -> list[int]:
    """The bytes of each."""
    return [p.nbytes for p in play.given(0).parameters() if p.requires_grad]


def count_whole(play: Play, rank: int) -> int:
    """How often this rank reduces all gradients in one call, as DDP does in each step."""
    return [e.nbytes for e in find_calls(play, rank, "all_reduce")].count(sum(list_bytes(play)))


def draws_everything(play: Play) -> bool:
    """Each rank takes as many steps as one alone would."""
    everything = count_steps(play, 1)
    return play.done and count_whole(play, 0) == everything > count_steps(play, play.case.world)


def check_ddp_reduces(play: Play) -> Iterator[Finding]:
    """DDP, which compares shapes at its start, reduces all gradients once in each step, and nobody
    sends them one by one."""
    want, each = count_steps(play, play.case.world), list_bytes(play)
    for rank in play.ranks:
        got, calls = count_whole(play, rank), [e.nbytes for e in find_calls(play, rank, *SUMS)]
        compares = any(e.dtype == "int64" for e in play.trace.of(rank))
        one_by_one = all(calls.count(size) >= want * each.count(size) for size in each)
        if got != want or one_by_one or not compares:
            text = f"in {want} steps rank {rank} reduces all gradients at once {got} times"
            yield Finding("by-hand", f"{text}, and makes {len(calls) - got} other calls", rank)


Reports = dict[str, list[Number]]  # what is reported in place of the right number
ACCURACIES: Reports = {
    "padding-counted": [
        lambda right, shares, rank, hits: right.mean() * len(shares),
        lambda right, shares, rank, hits: right[shares].mean(),
        lambda right, shares, rank, hits: right[shares].sum() / len(right),
        lambda right, shares, rank, hits: right[torch.arange(shares.numel()) % len(right)].mean(),
    ],
    "mean-of-ranks": [
        lambda right, shares, rank, hits: (
            sum(right[r :: len(shares)].mean() for r in range(len(shares))) / len(shares)
        ),
    ],
    "local-accuracy": [
        lambda right, shares, rank, hits: right[rank :: len(shares)].mean(),
        lambda right, shares, rank, hits: right[rank :: len(shares)].sum() / len(right),
        lambda right, shares, rank, hits: right[shares[rank]].mean(),
    ],
    "while-training": [
        lambda right, shares, rank, hits: torch.cat(hits, 1).mean(),
        lambda right, shares, rank, hits: torch.cat(hits, 1)[rank].mean(),
    ],
}
LOSSES: Reports = {
    "local-loss": [lambda losses, rank: torch.cat(losses, 1)[rank].mean()],
    "mean-of-batches": [
        lambda losses, rank: sum(one.mean() for one in losses) / len(losses),
        lambda losses, rank: sum(one[rank].mean() for one in losses) / len(losses),
    ],
}
STEPS: Mistakes = {  # how else the weights may come about
    "not-averaged": [{"alone": True}, {"alone": True, "start": lambda models: None}],
    "no-set-epoch": each(told=[lambda epoch: 0, lambda epoch: epoch + 1]),
    "sampler": [
        {"salt": lambda seed, rank: 0},
        {"salt": lambda seed, rank: seed + rank},
        {"sampler": partial(DistributedSampler, shuffle=False)},
    ],
    "batches": [
        {"sampler": partial(DistributedSampler, drop_last=True)},
        {"cut": lambda shares, size: shares[:, : len(shares[0]) // size * size].split(size, 1)},
        {"cut": lambda shares, size: shares.split(max(1, size // len(shares)), 1)},
    ],
    "no-zero-grad": each(clears=[lambda step: False, lambda step: step == 0]),
    "another-step": [
        {"momentum": 0.9},
        {"follows": lambda losses: losses.sum(1).mean()},
        {"follows": lambda losses: losses.mean(1).sum()},
        {"follows": lambda losses: losses.mean() / len(losses)},
        *each(rate=(0.0, 1e-3, 0.01, 0.1)),
    ],
}
trainings = partial(rows, "model epochs batch_size seed")
exercise(
    "06.1 train_ddp",
    train,
    words=WORDS,
    inputs=make_training,
    core=lambda rng: trainings(
        (2, 16, "two layers", 3, 3, 1),
        (2, 13, "two layers", 3, 3, 4),
        (3, 20, "two layers", 3, 2, rng.randrange(2, 1000)),
        (4, rng.choice((25, 26, 27)), "four layers", 2, 3, 6),
        (5, rng.randrange(21, 25), "two layers", 2, 2, 3),
    ),
    sturdy=lambda rng: [
        *trainings((1, 11, "two layers", 2, 4, 5), (8, 37, "two layers", 2, 2, 6)),
        *trainings((3, 2, "two layers", 2, 16, 2), (2, 9, "first layer frozen", 2, 2, 3)),
        *trainings((2, 18, "dropout", 3, 2, 8), (2, 12, "buffers", 2, 3, 9)),
    ],
    special=chunked,
    free=["grad", "flag"],
    tolerance=ROUNDING,
    length_is="samples",
    blank=False,
    budget=[check_ddp_reduces],
    hints={
        "whole-set": "Every rank draws the whole dataset. What gives each a share of its own?",
        "uneven-shares": "Some rank takes one step more than another, and waits in it for ever.",
        "rank-0-only": "Rank 0 has the right numbers, and others do not. Who tells them?",
        "padding-counted": "Samples count twice: the sampler gives some out twice. Or do several "
        "ranks count the same samples?",
        "mean-of-ranks": "A sample counts for more in a small share. Add up the counts of all "
        "ranks, then divide once.",
        "local-accuracy": "Each rank reports the accuracy of its own share. Add up the counts of "
        "all ranks.",
        "while-training": "The accuracy is counted in the training steps. Evaluate the model "
        "that stands at the end of the epoch.",
        "local-loss": "Each rank reports the loss of its own samples only.",
        "mean-of-batches": "A smaller last batch counts as much as a full one: take the mean over "
        "the samples.",
        "by-hand": "Calls of the answer's own average the gradients. DDP does this in backward().",
        "not-averaged": "The ranks end with different weights. Which module is called, the model "
        "or DDP?",
        "no-set-epoch": "The order is that of another epoch. What is the sampler told before "
        "each epoch? (Before the first one it is 0.)",
        "sampler": "The batches are made of other samples. Does the sampler shuffle, with the "
        "given seed, and on all ranks in the same way?",
        "batches": "Batches have another size: batch_size is that of one rank, and a smaller "
        "last batch is kept.",
        "no-zero-grad": "No zero_grad() comes between the steps, and backward() adds.",
        "another-step": "The steps are not those of the text: it names the learning rate and "
        "says that there is no momentum. DDP divides by the number of ranks.",
        "copy": "The model that was given has not changed: the answer trains another one, or a "
        "copy.",
    },
    diagnoses={
        "whole-set": draws_everything,
        "uneven-shares": lambda p: (
            found("Deadlock", "Mismatch")(p) and p.case.length % p.case.world > 0
        ),
        "rank-0-only": lambda p: p.wrong == ["returned"] and is_right_on_rank_0(p),
        **{id: reports("accuracy", ways) for id, ways in ACCURACIES.items()},
        **{id: reports("loss", ways) for id, ways in LOSSES.items()},
    },
    mistakes=STEPS | {"copy": {"of": deepcopy}},
)


# ---- 06.2 accumulate_step ------------------------------------------------------------------------


def clip(gradient: Tensor, norm: float) -> Tensor:
    """The gradient, cut to this norm if it is longer."""
    return gradient * min(1.0, norm / (float(gradient.norm()) + 1e-6))


def leave_long(gradient: Tensor, norm: float) -> Tensor:
    """In place of clip: nothing is cut."""
    return gradient


def clip_each(parts: Tensor, norm: float) -> Tensor:
    """What has been added up is clipped again and again, before the next part comes to it."""
    return reduce(lambda added, part: clip(added, norm) + part, parts)


def accumulate(
    given: list[tuple],
    own_gradient: Callable[[Tensor, float], Tensor] = lambda parts, norm: parts.sum(0),
    clips: Callable[[Tensor, float], Tensor] = clip,
    loss: Callable[[Tensor, int], Tensor] = lambda losses, rank: losses.mean(),
    divided_before: bool = False,
    divided_after: bool = False,
) -> list[float]:
    """One step along the clipped mean gradient of all ranks' micro-batches. The rest are mistakes.

    ``own_gradient`` is what a rank makes of its micro-batches', each divided by their number.
    """
    n, gradients, losses = len(given), [], []
    for module, _, micro, _ in given:
        by_part = [cross_entropy(module(x), y) for x, y in micro]
        parts = [torch.autograd.grad(one / len(micro), list_own(module)) for one in by_part]
        gradients.append(torch.stack([torch.cat([g.flatten() for g in part]) for part in parts]))
        losses.append(torch.stack(by_part).detach())
    for module, optimizer, _, norm in given:
        mean = torch.stack([own_gradient(parts, norm) for parts in gradients]).mean(0)
        step = clips(mean / n if divided_before else mean, norm) / (n if divided_after else 1)
        sizes = [p.numel() for p in list_own(module)]
        for p, part in zip(list_own(module), step.split(sizes), strict=True):
            p.grad = part.view_as(p)
        optimizer.step()
    return [float(loss(torch.stack(losses), rank)) for rank in range(n)]


def list_own(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are trained."""
    return [p for p in model.parameters() if p.requires_grad]


def make_micro_batches(case: Case, rank: int) -> tuple:
    """A model, its optimizer, micro-batches, and the largest norm."""
    options = {"model": "buffers", SAMPLES: (2,) * case.world} | case.options
    alike = [replace(case, seed=case.seed + k, options=options) for k in range(case.length)]
    by_part = [batches(one, rank) for one in alike]
    module, optimizer, *_ = by_part[0]
    for p in module.parameters():
        p.data /= 32
    return module, optimizer, [(x, y) for *_, x, y in by_part], case.options["max_norm"]


def check_reduced_once(play: Play) -> Iterator[Finding]:
    """The gradients are reduced once: as many numbers as they have."""
    size = sum(p.numel() for p in list_own(play.given(0)))
    for rank in play.ranks:
        reduced, all_told = (count_numbers(find_calls(play, rank, *o)) for o in (("reduce",), SUMS))
        if reduced > size + 4 + 2 * play.case.length:  # some for the losses
            text = f"rank {rank} reduces {reduced} numbers, the gradients have {size}"
            yield Finding("syncs-each", text, rank, reduced, size)
        elif all_told > size + 4 + max(2, play.case.world) * play.case.length:
            text = f"rank {rank}'s calls carry {all_told} numbers, the gradients have {size}"
            yield Finding("gathers", text, rank, all_told, size)
        elif all_told < size and play.case.world > 1:  # they travel as objects, or are broadcast
            text = f"rank {rank} reduces {all_told} numbers, the gradients have {size}"
            yield Finding("gathers", text, rank, all_told, size)


def read_weights(play: Play, rank: int) -> dict[str, Any]:
    return {k: v for k, v in play.got(rank).args[0].items() if not k.endswith("grad")}


def stays_local(play: Play) -> bool:
    """The ranks end with different weights."""
    ranks = range(play.case.world if play.done else 0)
    return not all(same(read_weights(play, rank), read_weights(play, 0), CLOSE) for rank in ranks)


norms = partial(rows, "max_norm")
exercise(
    "06.2 accumulate_step",
    accumulate,
    inputs=make_micro_batches,
    words=WORDS,
    core=lambda rng: [
        *norms((2, 2, 100.0), (2, 2, 0.1), (3, 3, 0.05), (3, 4, 9.0), (4, 3, 0.2), (5, 2, 0.1)),
    ],
    sturdy=lambda rng: [
        *norms((1, 3, 0.1), (crowd(rng), 2, 0.1), (3, 1, 0.1)),
        *norms((3, 2, 0.1), dtype="float64"),
        *norms((2, 2, 0.1), options={"model": "first layer frozen"}),
        *norms((2, 2, 100.0), options={"gradients": "left over"}),
        *norms((2, 2, 100.0), calls=2),
    ],
    free=["grad"],
    ddp=True,
    tolerance=CLOSE,
    length_is="micro-batches",
    budget=[check_reduced_once],
    special=lambda case: {0: {"empty"}, 1: {"one micro-batch"}}.get(case.length, set()),
    hints={
        "stays-local": "The ranks end with different weights: gradients, or a step, stay on a "
        "rank. DDP reduces in a backward whose forward went through DDP itself, not the module "
        "inside it, and outside no_sync.",
        "syncs-each": "The gradients are reduced more than once in this step. It is the forward "
        "pass that settles whether its backward reduces: which ones lie outside no_sync?",
        "gathers": "The gradients of all ranks are sent to one rank, or to each, which adds them "
        "up by itself. A reduction adds them on the way, and each rank receives one sum.",
        "unscaled": "The gradients of the micro-batches are added up, so the step is that of "
        "their sum. A mean over all samples is asked for.",
        "divided-again": "DDP's gradients are means over the ranks already, and these are divided "
        "by the number of ranks once more.",
        "only-last": "Only the last micro-batch has a part in the step.",
        "clips-too-soon": "What is clipped is one rank's own gradient, or a part of it. The norm "
        "that counts is that of the average over all ranks and micro-batches.",
        "never-clips": "The step is as long as the gradient is; max_norm has no part in it.",
        "no-step": "The weights are as they were.",
        "local-loss": "Each rank returns the loss of its own micro-batches.",
        "last-loss": "The loss that comes back is that of the last micro-batch.",
        "sum-of-losses": "The losses are added up; their mean is asked for, over the "
        "micro-batches and over the ranks.",
    },
    mistakes={
        "unscaled": {"own_gradient": lambda parts, norm: len(parts) * parts.sum(0)},
        "divided-again": [{"divided_before": True}, {"divided_after": True}],
        "only-last": each(
            own_gradient=(lambda parts, norm: parts[-1], lambda parts, norm: len(parts) * parts[-1])
        ),
        "clips-too-soon": [
            {"own_gradient": lambda parts, norm: clip(parts.sum(0), norm), "clips": leave_long},
            {"own_gradient": clip_each},
        ],
        "never-clips": {"clips": leave_long},
        "no-step": {"clips": lambda gradient, norm: 0 * gradient},
        "local-loss": {"loss": lambda losses, rank: losses[rank].mean()},
        "last-loss": [
            {"loss": lambda losses, rank: losses[rank, -1]},
            {"loss": lambda losses, rank: losses[:, -1].mean()},
        ],
        "sum-of-losses": [
            {"loss": lambda losses, rank: losses[rank].sum()},
            {"loss": lambda losses, rank: losses.sum()},
            {"loss": lambda losses, rank: losses.mean(1).sum()},
            {"loss": lambda losses, rank: losses.mean(0).sum()},
        ],
    },
    diagnoses={"stays-local": stays_local},
)
