"""Lesson 06: train under DistributedDataParallel; accumulate micro-batches and reduce once.

``train_ddp`` chooses its own model, so its numbers are compared with what that model was seen to
do: the dataset watches, and an Account of it says what was drawn, lost and recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.checks.cases import Case, chunked, crowd
from course_lib.checks.compare import ANYTHING, same
from course_lib.checks.diagnose import OfPlay, found
from course_lib.checks.exercise import (
    Diagnosis,
    Exercise,
    Finding,
    Play,
    Seen,
    declare,
    turned,
)
from course_lib.checks.models import build
from course_lib.checks.rules import trace_of
from course_lib.checks.watched import Watched
from course_lib.trace import Event

CLOSE = 1e-4


def reductions(play: Play, rank: int) -> list[Event]:
    return [e for e in trace_of(play).of(rank) if "reduce" in e.op]


def mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else float("nan")


def cases(names: str, *sizes: tuple, **rest: Any) -> list[Case]:
    """A case for each (ranks, length, options …)."""
    more = rest.pop("options", {})
    return [Case(w, n, options=dict(zip(names.split(), values, strict=True)) | more, **rest)
            for w, n, *values in sizes]  # fmt: skip


# ---- 06.1 train_ddp ------------------------------------------------------------------------------


def training(case: Case, rank: int) -> tuple:
    source, o = torch.Generator().manual_seed(case.length), case.options
    images = torch.randint(17, (case.length, 1, 8, 8), generator=source) / 16
    labels = torch.randint(10, (case.length,), generator=source)
    return Watched(images, labels), o["epochs"], o["batch_size"], o["seed"]


class Account:
    """What the ranks did in a call: forward passes by epoch and rank; no epochs if none trained."""

    def __init__(self, labels: Tensor, epochs: int, by_rank: list[list[dict[str, Any]]]) -> None:
        self.labels, self.ranks = labels, range(len(by_rank))
        self.steps = [[p for p in passes if p["trained"]] for passes in by_rank]
        self.tells = all(mine and len(mine) % epochs == 0 for mine in self.steps)
        self.epochs = range(epochs if self.tells and by_rank else 0)
        self.trained: list[list[list]] = [[[] for _ in by_rank] for _ in self.epochs]
        self.evaluated: list[list[list]] = [[[] for _ in by_rank] for _ in self.epochs]
        self.weights: list[list] = [[] for _ in self.epochs]  # after the epoch, of some ranks
        for rank in self.ranks if self.epochs else ():
            each, epoch, left = len(self.steps[rank]) // epochs, -1, 0
            for one in by_rank[rank]:
                if left == 0 and epoch >= 0 and not self.evaluated[epoch][rank]:
                    self.weights[epoch].append(one["weights"])
                if left == 0 and one["trained"]:
                    epoch, left = epoch + 1, each
                if one["trained"]:
                    self.trained[epoch][rank].append(one)
                    left -= 1
                elif left == 0 and epoch >= 0:
                    self.evaluated[epoch][rank].append(one)

    def drawn(self, epoch: int) -> list[list[int]]:
        return [[i for p in passes for i in p["samples"]] for passes in self.trained[epoch]]

    def losses(self, epoch: int, rank: int) -> list[list[float]]:
        """Of each batch those of its samples."""
        return [cross_entropy(p["logits"], self.labels[p["samples"]], reduction="none").tolist()
                for p in self.trained[epoch][rank]]  # fmt: skip

    def hits(self, epoch: int, *ranks: int) -> list[tuple[int, bool]]:
        """Of each sample that these ranks, or all, have evaluated, whether it was recognised."""
        return [hit for r in ranks or self.ranks for p in self.evaluated[epoch][r] for hit in zip(
            p["samples"], (p["logits"].argmax(1) == self.labels[p["samples"]]).tolist(),
            strict=True)]  # fmt: skip

    def rate(self, epoch: int, *ranks: int) -> float:
        return mean(hit for _, hit in self.hits(epoch, *ranks))

    def numbers(self) -> dict[str, Any]:
        """What is to be reported."""
        accuracy = [mean(hit for _, hit in set(self.hits(e))) if self.settled(e) else ANYTHING
                    for e in self.epochs]  # fmt: skip
        losses = [mean(v for r in self.ranks for batch in self.losses(e, r) for v in batch)
                  for e in self.epochs]  # fmt: skip
        return {"loss": losses or ANYTHING, "accuracy": accuracy or ANYTHING}

    def settled(self, epoch: int) -> bool:
        hits = set(self.hits(epoch))
        return len(hits) == len({sample for sample, _ in hits}) == len(self.labels)


def account(play: Play, call: int = 0) -> Account:
    return Account(play.inputs[call][0][0].data[1], play.case.options["epochs"], [
        seen.args[0]["passes"] for seen in (play.seen[call] if play.done else [])])  # fmt: skip


def reported(seen: Seen, key: str) -> list:
    values = seen.returned.get(key) if isinstance(seen.returned, dict) else None
    return values if isinstance(values, list) else []


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
            tell("steps" if steps else "never-steps", f"rank {rank} trains in {len(steps)} steps, "
                 f"in {case.options['epochs']} epochs")  # fmt: skip
        if (largest := max((len(p["samples"]) for p in steps), default=0)) > batch:
            tell("batch-too-large", f"rank {rank} trains on {largest} samples at once")
        for number, (one, other) in enumerate(pairwise(steps), 2):
            if other["stale"] and one["weights"] != other["weights"]:
                tell("no-zero-grad", f"rank {rank}: in step {number} backward() finds what the "
                     "steps before have left in .grad")  # fmt: skip
    for epoch in a.epochs:
        drawn = [i for rank in a.drawn(epoch) for i in rank]
        if (twice := len(drawn) - len(set(drawn))) > spare:
            each = {len(set(rank)) for rank in a.drawn(epoch)}
            tell("plain-loader" if each == {case.length} else "own-shuffles", f"in epoch {epoch} "
                 f"{twice} draws repeat a sample; shares of equal size need {spare}")  # fmt: skip
        if (missed := case.length - len(set(drawn))) >= case.world * batch:
            tell("missed", f"in epoch {epoch} {missed} samples are never drawn")
        if epoch and a.drawn(epoch) == a.drawn(0) and max(map(len, a.drawn(0))) > 3:
            in_order = all(r[:-1] == sorted(r[:-1]) for r in a.drawn(0))  # the last may be padding
            tell("never-shuffled" if in_order else "no-set-epoch", f"epoch {epoch} draws the "
                 "samples in the order of epoch 0")  # fmt: skip
        if (shown := len({i for i, _ in a.hits(epoch)})) < case.length:
            tell("part-evaluated" if shown else "accuracy-while-training", f"after epoch {epoch} "
                 f"{shown} of {case.length} samples are evaluated")  # fmt: skip
        elif not a.settled(epoch):
            tell("models-differ", f"after epoch {epoch} one sample gets several classes")
        if not all(same(w, a.weights[epoch][0], 1e-5) for w in a.weights[epoch]):
            tell("not-averaged", f"after epoch {epoch} two ranks have different weights")
        if any(p["by chance"] for passes in a.evaluated[epoch] for p in passes):
            tell("training-mode", "the accuracy is of a model whose dropout, or BatchNorm, is on")
    first, *others = [w for weights in a.weights for w in weights] or [None]
    if first and all(w == first == a.steps[0][0]["weights"] for w in [first, *others]):
        tell("never-steps", "the weights are the same from beginning to end")
    yield from (Finding(kind, text) for kind, text in said.items())


def from_seed(play: Play) -> Iterator[Finding]:
    """Weights and order come from the seed: another one gives others, the same one the same."""
    calls = [(args[0][3], account(play, k)) for k, args in enumerate(play.inputs)]
    for (before, one), (seed, other) in [(calls[0], later) for later in calls[1:]]:
        if not (one.epochs and other.epochs):
            return
        alike = {"weights": one.steps[0][0]["weights"] == other.steps[0][0]["weights"],
                 "order": one.drawn(0) == other.drawn(0)}  # fmt: skip
        what = " and ".join(name for name in alike if alike[name] != (seed == before))
        if what and seed == before:
            yield Finding("not-repeatable", f"seed {seed} gives another {what} the second time")
        elif what:
            yield Finding("seed-unused", f"seeds {before} and {seed} give the same {what}")


def reduced_by_ddp(play: Play) -> Iterator[Finding]:
    """Each step reduces one gradient's worth; what is left is for losses and counts."""
    if not (a := account(play)).epochs:
        return
    if not any(p["under ddp"] for steps in a.steps for p in steps):
        yield Finding("by-hand", "no training step goes through a DistributedDataParallel")
    size, steps = a.steps[0][0]["gradient bytes"], max(map(len, a.steps))
    for rank in a.ranks:
        got, most = sum(e.nbytes for e in reductions(play, rank)), steps * (size + 256) + 8192
        if got > most:
            text = f"rank {rank} reduces {got} bytes in {steps} steps, the gradients have {size}"
            yield Finding("reduced-twice", text, rank, got, most)


def reports(key: str, *ways: Callable[[Account, int, int], float]) -> OfPlay:
    """``key`` is wrong, and on every rank, epoch by epoch, what one of the ways would give."""

    def when(play: Play) -> bool:
        if not (a := account(play)).epochs or not all(map(a.settled, a.epochs)):
            return False
        want, got = a.numbers()[key], [reported(seen, key) for seen in play.seen[0]]
        said = [[[float(way(a, e, r)) for e in a.epochs] for r in a.ranks] for way in ways]
        return not same(got, [want] * len(got), CLOSE) and any(same(got, s, CLOSE) for s in said)

    return when


def in_budget(kind: str) -> OfPlay:
    """Everything is right, and this is found."""
    return lambda play: not play.findings and found(kind)(play)


def stands_still(play: Play) -> bool:
    return found("deadlock", "mismatch")(play)


def alone(play: Play) -> bool:
    """One rank comes to a collective on a line of the answer that no other rank ever reaches."""
    by_line: dict[str, set[int]] = {}
    for e in trace_of(play).events if stands_still(play) else ():
        by_line.setdefault(str(e.line), set()).update([e.rank] if e.is_collective else [])
    return any(len(ranks) == 1 for line, ranks in by_line.items() if line != "None")


trainings = partial(cases, "batch_size epochs seed")
TRAINING = {  # by what is found; in this order, as one brings others with it
    "plain-loader": "Every rank draws every sample: all do the same work, and an epoch is as long "
                    "as with one rank. Who gives each rank a share?",
    "own-shuffles": "The ranks' shares overlap. They are parts of one whole only if all ranks "
                    "shuffle it alike, and each takes its own.",
    "batch-too-large": "More than batch_size samples go through the model of one rank at a time.",
    "never-shuffled": "Every epoch draws the samples in the order in which they lie there; they "
                      "are to be shuffled.",
    "no-set-epoch": "The samples are shuffled, and two epochs alike: from what would the sampler "
                    "know that another epoch has begun, and is it told in time?",
    "never-steps": "Nothing comes of backward(): the weights at the end are those of the start.",
    "no-zero-grad": "backward() adds to what is in .grad, and the gradients of the steps before "
                    "are still there: no zero_grad() comes between the steps.",
    "not-averaged": "In some steps or in all, gradients stay on the rank that made them, and each "
                    "rank trains a model of its own. Which module has to be called for them to go?",
    "accuracy-while-training": "No sample goes through the model between an epoch's last step and "
                               "the next one: this is not the accuracy at the end of the epoch.",
    "part-evaluated": "Between an epoch's last step and the next one some samples go through no "
                      "model. The whole dataset is to be evaluated.",
    "training-mode": "While it is evaluated, the model is in the mode in which it trains: dropout "
                     "leaves out what it likes, BatchNorm looks at this batch.",
    "models-differ": "Ranks that evaluate the same sample come to different classes. DDP keeps the "
                     "parameters equal; whose are the buffers, when the model is called past it?",
    "not-repeatable": "The same seed gives another training the second time. What does training "
                      "begin with that does not come from the seed?",
    "seed-unused": "Another seed changes too little: both the weights at the start and the order "
                   "of the samples are to come from it.",
}  # fmt: skip
REDUCING = {
    "by-hand": "The gradients are averaged, and by the answer's own calls. It is asked for "
               "DistributedDataParallel, which sends them while backward() goes on.",
    "reduced-twice": "More is reduced in a step than the gradients. Who has averaged them already "
                     "when backward() returns?",
}  # fmt: skip
REPORTS: list[tuple] = [  # what of an Account is reported for an epoch, by a rank
    ("padding-counted", "accuracy", "The sampler fills the last shares up with samples that it has "
     "given out already, and the accuracy counts them again.", lambda a, e, r: a.rate(e),
     lambda a, e, r: sum(hit for _, hit in a.hits(e)) / len(a.labels)),
    ("local-accuracy", "accuracy", "Each rank reports the accuracy over its own share; the counts "
     "have to be added up over the ranks before they are divided.", lambda a, e, r: a.rate(e, r)),
    ("mean-of-accuracies", "accuracy", "The ranks' accuracies are averaged, though their shares "
     "differ in size: add up what is counted, then divide once.",
     lambda a, e, r: mean(a.rate(e, k) for k in a.ranks)),
    ("local-loss", "loss", "Each rank reports the loss of its own samples only.",
     lambda a, e, r: mean(v for batch in a.losses(e, r) for v in batch)),
    ("mean-of-batches", "loss", "A smaller last batch counts as much as a full one: the mean over "
     "samples is asked for, not the mean of the batches' means.",
     lambda a, e, r: mean(map(mean, a.losses(e, r))),
     lambda a, e, r: mean(mean(map(mean, a.losses(e, k))) for k in a.ranks)),
    ("last-batch", "loss", "The loss is that of the epoch's last batch only.",
     lambda a, e, r: mean(a.losses(e, r)[-1]),
     lambda a, e, r: mean(v for k in a.ranks for v in a.losses(e, k)[-1])),
]  # fmt: skip


declare(Exercise(
    "06.1", "train_ddp", lambda given: [{"loss": ANYTHING, "accuracy": ANYTHING}] * len(given),
    inputs=training, settle=as_watched,
    core=lambda rng: trainings(
        (2, 16, 4, 2, 0), (2, 13, 3, 3, 1), (3, 20, 4, 2, rng.randrange(2, 1000)),
        (4, 4 * rng.randrange(4, 7) + 1, 2, 5, 6), (5, rng.randrange(21, 25), 2, 2, 3)),
    sturdy=lambda rng: [
        *trainings((1, 11, 4, 2, 5), (crowd(rng), 19, 2, 2, 6), (3, 7, 16, 2, 0),
                   (2, 9, 1, 1, rng.randrange(99))),
        *trainings((2, 8, 16, 2, 7), calls=3, later=({"seed": 8}, {"seed": 7}))],
    smaller=lambda case: [replace(case, world=w, length=n) for w in (2, case.world)
                          for n in (5, 8, 9) if case.calls == 1],
    special=chunked, fits=lambda case: 1 < case.world <= case.length,
    tolerance=CLOSE, length_is="samples", blank=False,
    rules=[trained_well, from_seed], budget=[reduced_by_ddp],
    diagnoses=[
        Diagnosis("uneven-shares", "Where samples cannot be divided evenly, one rank takes a step "
                  "more than another, and waits in it for a rank that never comes.",
                  lambda p: stands_still(p) and p.case.length % p.case.world > 0),
        Diagnosis("rank-0-alone", "One rank comes to a collective on a line that no other rank "
                  "reaches, and waits there for all. What does an `if rank == …` shut out?", alone),
        *(Diagnosis(id, hint, found(id)) for id, hint in TRAINING.items()),
        *(Diagnosis(id, hint, reports(key, *ways)) for id, key, hint, *ways in REPORTS),
        *(Diagnosis(id, hint, in_budget(id)) for id, hint in REDUCING.items()),
    ],
))  # fmt: skip


# ---- 06.2 accumulate_step ------------------------------------------------------------------------


def clip(gradient: Tensor, norm: float) -> Tensor:
    return gradient * min(1.0, norm / (float(gradient.norm()) + 1e-6))


def on_the_way(parts: Tensor, norm: float) -> Tensor:
    """Clipped after each micro-batch but the last, and then added to."""
    so_far = parts[0]
    for part in parts[1:]:
        so_far = clip(so_far, norm) + part
    return so_far


def accumulate(
    given: list[tuple], own: Callable[[Tensor, float], Tensor] = lambda parts, norm: parts.sum(0),
    end: Callable[..., Tensor] = lambda g, norm, n: clip(g, norm),
    told: Callable[[Tensor, int], Tensor] = lambda losses, rank: losses.mean(),
    each_synced: bool = False, keeps: Callable[[nn.Parameter], bool] = lambda p: False,
    step: bool = True, off: bool = False,
) -> list[float]:  # fmt: skip
    """One step along the clipped mean gradient of all ranks' micro-batches. The rest are mistakes.

    ``own`` makes one gradient of a rank's micro-batches, each divided by their number; ``end``
    what is stepped along, of the mean over the ranks.
    """
    gradients, losses = [], []
    for model, _, batches, _ in given:
        trained = [p for p in model.parameters() if p.requires_grad]
        each = [cross_entropy(model(x), y) for x, y in batches]
        parts = [torch.autograd.grad(loss / len(batches), trained) for loss in each]
        gradients.append(torch.stack([torch.cat([g.flatten() for g in part]) for part in parts]))
        losses.append(torch.stack(each).detach())
    if each_synced:
        gradients = [torch.stack(gradients).mean(0)]
    for model, optimizer, _, norm in given:
        mean = torch.stack([own(parts, norm) for parts in gradients]).mean(0)
        trained = [p for p in model.parameters() if p.requires_grad]
        whole = end(mean, norm, len(given)).split([p.numel() for p in trained])
        for p in model.parameters():
            p.grad = p.grad if keeps(p) else None
        for p, part in zip(trained, whole, strict=True):
            p.grad = part.view_as(p) + (0 if p.grad is None else p.grad)
        if step:
            optimizer.step()
        model.require_backward_grad_sync = not off
    return [float(told(torch.stack(losses), rank)) for rank in range(len(given))]


def accumulating(case: Case, rank: int) -> tuple:
    dtype = getattr(torch, case.dtype)
    model = build(case.options.get("model", "buffers"), dtype)
    source = torch.Generator().manual_seed(case.seed + 17)
    with torch.no_grad():
        for p in model.parameters():
            p.uniform_(-0.5, 0.5, generator=source)
            p.grad = torch.ones_like(p) if "gradients" in case.options else None
    source.manual_seed(case.seed + 101 * (rank + 1))
    batches = [(torch.randint(-3, 4, (2, 2), generator=source).to(dtype),
                torch.randint(2, (2,), generator=source)) for _ in range(case.length)]  # fmt: skip
    return model, torch.optim.SGD(model.parameters(), lr=0.5), batches, case.options["max_norm"]


def numbers(events: Iterable[Event]) -> int:
    """How many numbers they carry, of whatever dtype."""
    return sum(e.nbytes // getattr(torch, e.dtype).itemsize for e in events if e.dtype)


def reduced_once(play: Play) -> Iterator[Finding]:
    """The gradients are reduced once: no more numbers than they have, and no fewer."""
    size = sum(p.numel() for p in play.given(0).parameters() if p.requires_grad)
    for rank in range(play.case.world):
        got = numbers(reductions(play, rank))
        if got > size + 4 + 2 * play.case.length:  # some for the losses
            text = f"rank {rank} reduces {got} numbers, the gradients have {size}"
            yield Finding("syncs-each", text, rank, got, size)
        elif got < size:
            text = f"rank {rank} hands {got} numbers to reductions, the gradients have {size}"
            yield Finding("not-reduced", text, rank, got, size)


def stays_local(through_ddp: bool) -> OfPlay:
    """The weights are wrong, and no gradients are reduced. DDP sends the buffers on the line that
    calls it, also inside no_sync."""

    def when(play: Play) -> bool:
        called = any(e.op == "broadcast" and e.line for e in trace_of(play).of(0))
        local = any(f.kind == "not-reduced" for f in reduced_once(play))
        return play.done and "left" in play.kinds() and local and called == through_ddp

    return when


steps = partial(cases, "max_norm")
wrong = turned(accumulate)
declare(Exercise(
    "06.2", "accumulate_step", accumulate, inputs=accumulating,
    core=lambda rng: steps((2, 2, 100.0), (2, 3, 0.1), (3, 2, 0.05), (3, 4, 9.0), (4, 3, 0.2),
                           (5, 2, 0.1)),
    sturdy=lambda rng: [
        *steps((1, 3, 0.1), (crowd(rng), 2, 0.1), (3, 1, 0.1)),
        *steps((3, 2, 0.1), dtype="float64"),
        *steps((2, 2, 0.1), options={"model": "first layer frozen"}),
        *steps((2, 2, 100.0), options={"gradients": "left over"}),
        *steps((2, 2, 100.0), options={"gradients": "left over", "model": "first layer frozen"}),
        *steps((2, 2, 100.0), calls=2)],
    free=["grad"], ddp=True, tolerance=CLOSE, length_is="micro-batches",
    fits=lambda case: case.world > 1 and case.length > 1, budget=[reduced_once],
    special=lambda case: {0: {"empty"}, 1: {"one micro-batch"}}.get(case.length, set()),
    diagnoses=[
        Diagnosis("through-module", "The forward passes go past DDP to the model inside it. Then "
                  "DDP knows of no backward, reduces nothing, and every rank takes a step of its "
                  "own.", stays_local(through_ddp=False)),
        Diagnosis("never-synced", "Every forward pass runs inside no_sync, so no gradient is "
                  "reduced, and each rank takes a step of its own.", stays_local(through_ddp=True)),
        Diagnosis("not-reduced", "The step is right, and no reduction has made it. DDP reduces "
                  "the gradients, once, while it goes backward.",
                  in_budget("not-reduced")),
        Diagnosis("syncs-each", "The gradients are reduced more than once in this step. It is the "
                  "forward pass that settles whether its backward reduces: which ones lie outside "
                  "no_sync?", in_budget("syncs-each")),
    ],
    mistakes=[
        wrong("unscaled", "The gradients of the micro-batches are added up, so the step is that of "
              "their sum. A mean over all samples is asked for.",
              own=lambda parts, norm: len(parts) * parts.sum(0)),
        wrong("only-last", "Only the last micro-batch has a part in the step.",
              {"own": lambda parts, norm: parts[-1]},
              {"own": lambda parts, norm: len(parts) * parts[-1]}),
        wrong("clips-before-sync", "What is clipped is one rank's own gradient, or a part of it. "
              "The norm that counts is that of the average over all ranks, known when that has "
              "been made.",
              {"own": lambda parts, norm: clip(parts.sum(0), norm), "end": lambda g, norm, n: g},
              {"own": lambda parts, norm: clip(parts[:-1].sum(0), norm) + parts[-1],
               "end": lambda g, norm, n: g},
              {"own": on_the_way, "end": lambda g, norm, n: g}, {"own": on_the_way}),
        wrong("clips-each", "The gradients are clipped after every micro-batch, when they are only "
              "a part of the mean.", own=on_the_way, each_synced=True),
        wrong("clips-parameters", "Each parameter's gradient is clipped by itself. The norm is one "
              "number, over all parameters together.",
              end=lambda g, norm, n: torch.cat([clip(part, norm) for part in
                                                g.split([4, 2] * (len(g) // 6))])),
        wrong("never-clips", "The step is as long as the gradient is; max_norm has no part in it.",
              end=lambda g, norm, n: g),
        wrong("clips-values", "Each number is clipped by itself. The gradient's norm, over all "
              "parameters together, is to be at most max_norm.",
              end=lambda g, norm, n: g.clamp(-norm, norm)),
        wrong("divides-again", "The gradients are divided by the number of ranks once too often: "
              "DDP has averaged them, not added them up.",
              end=lambda g, norm, n: clip(g / n, norm)),
        wrong("no-step", "The weights are as they were.", step=False),
        wrong("stale", "Gradients left over from before have a part in the step.",
              {"keeps": lambda p: True}, {"keeps": lambda p: not p.requires_grad}),
        wrong("left-off", "DDP is left in a state in which it reduces nothing: the caller's next "
              "backward() would stay local.", off=True),
        wrong("local-loss", "Each rank returns the loss of its own micro-batches.",
              told=lambda losses, rank: losses[rank].mean()),
        wrong("last-loss", "The loss that comes back is that of the last micro-batch.",
              {"told": lambda losses, rank: losses[rank, -1]},
              {"told": lambda losses, rank: losses[:, -1].mean()}),
        wrong("sum-of-losses", "The losses are added up; their mean is asked for, over the "
              "micro-batches and over the ranks.",
              {"told": lambda losses, rank: losses[rank].sum()},
              {"told": lambda losses, rank: losses.mean(0).sum()},
              {"told": lambda losses, rank: losses.mean(1).sum()},
              {"told": lambda losses, rank: losses.sum()}),
    ],
))  # fmt: skip
