"""Lesson 06: train under DistributedDataParallel; accumulate micro-batches and reduce once.

``train_ddp`` chooses its own model, so its numbers are compared with what its model was seen to do.

    Digits (the dataset)     writes down every forward pass that is shown its images: which ones,
        │ by rank            what came out, and whether a gradient came back
    Account (of a play)      by epoch: the samples drawn, their losses, the predictions
        │
    rules, expected values, diagnoses

``accumulate_step`` is compared with one process that takes the same step on all micro-batches.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from course_lib.checks.cases import Case, crowd
from course_lib.checks.compare import ANYTHING, same
from course_lib.checks.diagnoses import (
    REMEMBERS,
    OfPlay,
    When,
    any_of,
    both,
    every,
    found,
    only_where,
    some,
)
from course_lib.checks.exercise import (
    BY_OPTIMIZERS,
    Diagnosis,
    Evidence,
    Exercise,
    Finding,
    Play,
    Seen,
    declare,
)
from course_lib.checks.lesson_06_models import (
    LEARNING_RATE,
    Descent,
    Digits,
    Packed,
    Shown,
    Weights,
)
from course_lib.checks.rules import trace_of
from course_lib.errors import Deadlock, Mismatch
from course_lib.trace import Event

REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single",
            "all_reduce_coalesced")  # fmt: skip
MiB = 1 << 20


def reductions(play: Play, rank: int, above: int) -> list[Event]:
    """This rank's reductions of more than so many bytes: of gradients, not of a count or a loss."""
    return [e for e in trace_of(play).of(rank) if e.op in REDUCING and e.nbytes > above]


# ---- train_ddp: what a model is shown --------------------------------------------------------


def seeds(case: Case) -> list[int]:
    """The seed that the answer is called with, by call."""
    return [case.call(number).options["seed"] for number in range(case.calls)]


def digits(case: Case) -> Digits:
    """Images of 8 × 8 pixels that nobody could mistake for one another, and their labels."""
    source = torch.Generator().manual_seed(case.options.get("images", case.seed))
    images = torch.randint(17, (case.length, 1, 8, 8), generator=source) / 16
    return Digits(images, torch.randint(10, (case.length,), generator=source))


def training(case: Case, _: int) -> tuple[Digits, int, int, int]:
    o = case.options
    return digits(case), o["epochs"], o["batch_size"], o["seed"]


# ---- train_ddp: what it comes to -------------------------------------------------------------


@dataclass
class Account:
    """What the ranks were seen to do in a call. ``steps`` is empty where that says nothing."""

    labels: Tensor
    steps: list[int] = field(default_factory=list)  # an epoch, by rank
    drawn: list[list[list[int]]] = field(default_factory=list)  # [epoch][rank]: samples in order
    losses: list[list[list[list[float]]]] = field(default_factory=list)  # [epoch][rank][batch]
    evaluated: list[list[list[tuple[int, int]]]] = field(default_factory=list)  # (sample, class)
    logits: list[dict[int, Tensor]] = field(default_factory=list)  # [epoch][sample]
    online: list[list[list[bool]]] = field(default_factory=list)  # right while training
    untrained: dict[int, Tensor] = field(default_factory=dict)  # logits before the first step
    gradient_bytes: int = 0
    largest: int = 0  # batch that was trained on
    under_ddp: bool = False  # some training step went through DistributedDataParallel
    by_chance: bool = False  # some sample was evaluated so
    found: list[Finding] = field(default_factory=list)

    @property
    def everything(self) -> list[list[float]]:
        """By epoch: the loss of every sample drawn, on all ranks."""
        return [[v for rank in ranks for batch in rank for v in batch] for ranks in self.losses]

    def hits(self, epoch: int, rank: int) -> list[bool]:
        return [bool(self.labels[i] == c) for i, c in self.evaluated[epoch][rank]]

    def votes(self, epoch: int) -> dict[int, set[int]]:
        """For each sample the classes that ranks gave it."""
        out: dict[int, set[int]] = {}
        for rank in self.evaluated[epoch]:
            for sample, its_class in rank:
                out.setdefault(sample, set()).add(its_class)
        return out


def account(play: Play, call: int = 0) -> Account:
    """What a call came to, put together once."""
    known = play.__dict__.setdefault("_accounts", {})
    if call not in known:
        known[call] = _account(play, call)
    return known[call]


def _account(play: Play, call: int) -> Account:
    out = Account(play.given(0, call).data[1])
    epochs = play.case.options["epochs"]
    every = play.seen[call] if play.done else []
    shown = [seen.args[0].seen if seen.args else [] for seen in every]
    counts = [sum(s.trained for s in by_rank) for by_rank in shown]
    for rank, count in enumerate(counts):
        if not count:
            text = f"rank {rank}: no model has learned from the samples"
            out.found.append(Finding("untrained", text, rank))
        elif count % epochs:
            text = f"rank {rank} takes {count} training steps in {epochs} epochs"
            out.found.append(Finding("steps", text, rank))
    if out.found or not counts:
        return out
    out.steps = [count // epochs for count in counts]
    for name in ("drawn", "losses", "evaluated", "online"):
        setattr(out, name, [[[] for _ in shown] for _ in range(epochs)])
    out.logits = [{} for _ in range(epochs)]
    for rank, by_rank in enumerate(shown):
        _fill(out, rank, by_rank)
    return out


def _fill(out: Account, rank: int, by_rank: list[Shown]) -> None:
    done, steps = 0, out.steps[rank]
    for s in by_rank:
        classes = s.logits.argmax(dim=1).tolist()
        if s.trained:
            epoch, labels = done // steps, out.labels[s.samples]
            out.drawn[epoch][rank] += s.samples
            losses = functional.cross_entropy(s.logits, labels, reduction="none").tolist()
            out.losses[epoch][rank].append(losses)
            out.online[epoch][rank] += [c == int(y) for c, y in zip(classes, labels, strict=True)]
            if not done:
                out.untrained |= dict(zip(s.samples, s.logits, strict=True))
            out.gradient_bytes = max(out.gradient_bytes, s.gradient_bytes)
            out.largest = max(out.largest, len(s.samples))
            out.under_ddp |= s.under_ddp
            done += 1
        elif done and done % steps == 0:
            epoch = done // steps - 1
            out.by_chance |= s.by_chance
            out.evaluated[epoch][rank] += zip(s.samples, classes, strict=True)
            out.logits[epoch] |= dict(zip(s.samples, s.logits, strict=True))


def mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else math.nan


def numbers_of(play: Play, call: int) -> list[Seen]:
    """The mean loss of the samples drawn, the share of samples that are recognised, by epoch."""
    a = account(play, call)
    if not a.steps:
        return [Seen({"loss": ANYTHING, "accuracy": ANYTHING}) for _ in play.inputs[call]]
    accuracy: list = []
    for epoch in range(len(a.drawn)):
        votes = a.votes(epoch)
        settled = len(votes) == len(a.labels) and all(len(v) == 1 for v in votes.values())
        right = [float(int(a.labels[i]) in v) for i, v in votes.items()]
        accuracy.append(mean(right) if settled else ANYTHING)
    right_ones = {"loss": [mean(values) for values in a.everything], "accuracy": accuracy}
    out = []
    for rank in range(play.case.world):
        got = play.seen[call][rank].returned  # in whatever order its two entries are
        order = list(got) if isinstance(got, dict) and set(got) == set(right_ones) else right_ones
        out.append(Seen({key: right_ones[key] for key in order}))
    return out


# ---- train_ddp: rules ------------------------------------------------------------------------


def all_trained(play: Play) -> Iterator[Finding]:
    """Every rank trains, as often as the others."""
    yield from account(play).found


def padding(play: Play) -> int:
    return -play.case.length % play.case.world


def shares_apart(play: Play) -> Iterator[Finding]:
    """In an epoch no sample is drawn twice, but for the padding that makes shares equal."""
    for epoch, ranks in enumerate(account(play).drawn):
        count = Counter(i for rank in ranks for i in rank)
        twice = sum(count.values()) - len(count)
        if twice > padding(play):
            text = f"in epoch {epoch} {twice} draws repeat a sample that was drawn already"
            text += f"; {padding(play)} are needed to make the shares equal" * bool(padding(play))
            yield Finding("drawn twice", text)
            return


def none_missed(play: Play) -> Iterator[Finding]:
    """In an epoch every sample is drawn, but for what a last, smaller batch holds."""
    most = play.case.world * play.case.options["batch_size"] - 1
    for epoch, ranks in enumerate(account(play).drawn):
        missed = play.case.length - len({i for rank in ranks for i in rank})
        if missed > most:
            yield Finding("missed", f"in epoch {epoch} {missed} samples are never drawn")
            return


def in_new_order(play: Play) -> Iterator[Finding]:
    """No two epochs draw the samples in the same order on all ranks."""
    drawn = account(play).drawn
    for epoch in range(1, len(drawn)):
        if drawn[epoch] == drawn[0] and max(len(rank) for rank in drawn[0]) > 3:
            text = f"epoch {epoch} draws the samples in the order of epoch 0, on every rank"
            yield Finding("same order", text)
            return


def small_batches(play: Play) -> Iterator[Finding]:
    """No rank takes more than batch_size samples at once."""
    most, largest = play.case.options["batch_size"], account(play).largest
    if largest > most:
        text = f"a rank trains on {largest} samples at once, batch_size is {most}"
        yield Finding("batch", text, None, largest, most)


def all_evaluated(play: Play) -> Iterator[Finding]:
    """After each epoch every sample is shown to the model on some rank, and all models agree."""
    a = account(play)
    for epoch in range(len(a.drawn)):
        votes = a.votes(epoch)
        if len(votes) < play.case.length:
            text = f"after epoch {epoch}, {len(votes)} of {play.case.length} samples are evaluated"
            yield Finding("unevaluated", text)
            return
        if any(len(v) > 1 for v in votes.values()):
            text = f"after epoch {epoch} two ranks give one sample different classes"
            yield Finding("models differ", text)
            return


def gradients_cleared(play: Play) -> Iterator[Finding]:
    """What backward() adds to is no gradient of an earlier step."""
    for rank in range(play.case.world):
        if any(s.stale for call in range(play.case.calls) for s in play.left(rank, call).seen):
            text = f"rank {rank}: backward() adds to gradients of an earlier step"
            yield Finding("stale", text, rank)


def in_eval_mode(play: Play) -> Iterator[Finding]:
    """Whatever dropout and BatchNorm do while training, they leave off when it is evaluated."""
    if account(play).by_chance:
        yield Finding("by chance", "the accuracy is of a model whose dropout, or BatchNorm, is on")


def gradients_travel(play: Play) -> Iterator[Finding]:
    """One gradient's worth a step is handed to collectives; half of it in half precision."""
    a = account(play)
    least = len(a.drawn) * max(a.steps, default=0) * a.gradient_bytes // 2
    for rank in range(play.case.world if play.case.world > 1 and a.steps else 0):
        sent = sum(e.nbytes for e in trace_of(play).of(rank) if e.op != "broadcast")
        if sent < least:
            text = f"rank {rank} hands {sent} bytes to collectives, its gradients have {least * 2}"
            never = sent < len(a.drawn) * a.gradient_bytes // 4
            kind = "not averaged" if never else "seldom averaged"
            yield Finding(kind, text, rank, sent, least * 2)
            return


def weights_move(play: Play) -> Iterator[Finding]:
    """From epoch to epoch the model says something else."""
    logits = account(play).logits
    for epoch in range(1, len(logits)):
        shared = logits[epoch].keys() & logits[0].keys()
        if shared and all(torch.equal(logits[epoch][i], logits[0][i]) for i in shared):
            yield Finding("standing still", f"after epoch {epoch} the model is as after epoch 0")
            return


def weights_alike(one: Account, other: Account) -> bool:
    """Before the first step two calls' models say the same of the samples that both were shown."""
    both_saw = one.untrained.keys() & other.untrained.keys()
    return all(torch.allclose(one.untrained[i], other.untrained[i], 1e-4, 1e-5) for i in both_saw)


def from_seed(play: Play) -> Iterator[Finding]:
    """Weights and order come from the seed: another one gives others, the same one the same."""
    called = seeds(play.case)
    accounts = [account(play, call) for call in range(play.case.calls)]
    if not all(a.steps for a in accounts):
        return
    for call in range(1, len(called)):
        weights = weights_alike(accounts[0], accounts[call])
        order = accounts[0].drawn == accounts[call].drawn
        same_seed = called[call] == called[0]
        what = [name for name, alike in (("weights", weights), ("order", order))
                if alike != same_seed]  # fmt: skip
        if what and same_seed:
            text = f"seed {called[0]} does not give the same {' and '.join(what)} the second time"
            yield Finding("not repeated", text)
        elif what:
            text = f"seeds {called[0]} and {called[call]} give the same {' and '.join(what)}"
            yield Finding("seed without effect", text)


STATISTICS = 1024  # bytes: a reduction of no more than that is a loss or a count


def reduced_once(play: Play) -> Iterator[Finding]:
    """Each step reduces one gradient's worth, in buckets."""
    a = account(play)
    epochs = len(a.drawn) * play.case.calls
    steps = max(a.steps, default=0) * epochs
    if not steps or (play.case.world > 1 and any(gradients_travel(play))):
        yield Finding("not reduced", "no gradients are reduced")
        return
    calls = steps * (2 + a.gradient_bytes // MiB)
    for rank in range(play.case.world if steps and play.case.world > 1 else 0):
        mine = reductions(play, rank, min(STATISTICS, a.gradient_bytes // 2))
        if (sent := sum(e.nbytes for e in mine)) > steps * a.gradient_bytes:
            text = (f"rank {rank} reduces {sent} bytes in {steps} steps, "
                    f"the gradients have {a.gradient_bytes} bytes a step")  # fmt: skip
            yield Finding("reduced bytes", text, rank, sent, steps * a.gradient_bytes)
            return
        every_one = reductions(play, rank, 16)
        if len(every_one) > calls + 4 * epochs:
            text = (f"rank {rank} calls {len(every_one)} reductions in {steps} steps; "
                    f"the gradients would fit into {calls // 2} buckets")  # fmt: skip
            yield Finding("many calls", text, rank, len(every_one), calls)
            return


def in_buckets(play: Play) -> Iterator[Finding]:
    """It is DistributedDataParallel that averages."""
    a = account(play)
    if play.case.world > 1 and a.steps and not a.under_ddp:
        yield Finding("no DDP", "no training step goes through a DistributedDataParallel")


# ---- train_ddp: mistakes ---------------------------------------------------------------------


def series(play: Play, rank: int, key: str) -> list[float]:
    got = play.got(rank).returned
    values = got.get(key, []) if isinstance(got, dict) else []
    return values if isinstance(values, list) else []


def reports(key: str, says: Callable[[Account, int, int], float]) -> When:
    """Every rank's ``key`` is, epoch by epoch, what ``says(account, epoch, rank)`` would be."""

    def like_that(play: Play) -> bool:
        a = account(play)
        return bool(a.steps) and all(
            same(series(play, r, key), [says(a, e, r) for e in range(len(a.drawn))], 1e-4)
            for r in range(play.case.world))  # fmt: skip

    def wrong(play: Play) -> bool:
        want = numbers_of(play, 0)
        return any(not same(series(play, r, key), want[r].returned[key], 1e-4)
                   for r in range(play.case.world))  # fmt: skip

    return lambda e: all(p.done for p in e.failed) and any(wrong(p) for p in e.failed) and all(
        like_that(p) for p in e.plays if p.done)  # fmt: skip


def alone_in_a_collective(play: Play) -> bool:
    """One rank comes to a collective on a line of the answer that no other rank ever reaches."""
    if not isinstance(play.error, Deadlock | Mismatch) or play.run is None:
        return False
    by_line: dict[str, set[int]] = {}
    for event in trace_of(play).events:
        if event.is_collective and event.line is not None:
            by_line.setdefault(str(event.line), set()).add(event.rank)
    return play.case.world > 1 and any(len(ranks) == 1 for ranks in by_line.values())


def stands_still(play: Play) -> bool:
    return isinstance(play.error, Deadlock | Mismatch)


def uneven(play: Play) -> bool:
    """Without padding, some ranks get a sample more than others."""
    return padding(play) > 0


def own_shuffles(play: Play) -> bool:
    """Every rank draws its share, none of it twice, and the shares overlap."""
    shares = account(play).drawn
    fair = -(-play.case.length // play.case.world)
    return "drawn twice" in play.kinds() and all(
        len(rank) == len(set(rank)) <= fair for ranks in shares for rank in ranks)  # fmt: skip


def whole_each(play: Play) -> bool:
    """Every rank draws every sample."""
    drawn = account(play).drawn
    return (
        bool(drawn)
        and play.case.world > 1
        and all(
            len(rank) == len(set(rank)) == play.case.length for ranks in drawn for rank in ranks
        )
    )


def never_shuffled(play: Play) -> bool:
    return found("same order")(play) and all(  # the last one of a share may be padding
        rank[:-1] == sorted(rank[:-1]) for rank in account(play).drawn[0])  # fmt: skip


def only(*kinds: str) -> OfPlay:
    return lambda p: p.done and bool(p.kinds()) and p.kinds() <= set(kinds)


def padded_hits(a: Account, epoch: int) -> tuple[int, int]:
    hits = [h for rank in range(len(a.evaluated[epoch])) for h in a.hits(epoch, rank)]
    return sum(hits), len(hits)


# Accuracy counts what was evaluated, duplicates included.
padded_twice = any_of(
    reports("accuracy", lambda a, e, r: padded_hits(a, e)[0] / max(1, padded_hits(a, e)[1])),
    reports("accuracy", lambda a, e, r: padded_hits(a, e)[0] / len(a.labels)),
)


def local_accuracy(a: Account, epoch: int, rank: int) -> float:
    return mean(map(float, a.hits(epoch, rank)))


def train_case(world: int, length: int, batch_size: int, epochs: int = 2, seed: int = 0) -> Case:
    options = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    return Case(world, length, seed=seed, options=options)


def train_core(rng: random.Random) -> list[Case]:
    return [
        train_case(2, 16, 4),
        train_case(2, 13, 4, epochs=3, seed=1),
        train_case(3, 20, 4, seed=rng.randrange(2, 1000)),
        train_case(4, 4 * rng.randrange(4, 7) + 1, 3, epochs=5, seed=rng.randrange(2, 1000)),
        train_case(5, rng.randrange(21, 25), 2, seed=3),
    ]


def train_sturdy(rng: random.Random) -> list[Case]:
    return [train_case(1, 11, 4, seed=5), train_case(crowd(rng), 19, 2, seed=6),
            train_case(3, 7, 16), train_case(2, 9, 1, epochs=1, seed=rng.randrange(99)),
            replace(train_case(2, 8, 16, seed=(first := rng.randrange(99))), calls=3, later=tuple(
                {"seed": seed, "images": first} for seed in (first + 1, first)))]  # fmt: skip


def smaller_training(case: Case) -> Iterator[Case]:
    o = case.options
    for world in sorted({1, 2, case.world} if case.calls == 1 else ()):
        for length in (5, 8, 9, case.length):
            if world < case.world or length < case.length:
                yield train_case(world, length, o["batch_size"], o["epochs"], o["seed"])
    yield case


declare(Exercise(
    "06.1", "train_ddp",
    inputs=training,
    expected=numbers_of,
    core=train_core,
    sturdy=train_sturdy,
    smaller=smaller_training,
    tolerance=1e-4,
    needs=BY_OPTIMIZERS,
    length_is="samples",
    rules=[all_trained, shares_apart, none_missed, in_new_order, small_batches,
           gradients_travel, weights_move, gradients_cleared, all_evaluated,
           in_eval_mode, from_seed],
    budget=[reduced_once, in_buckets],
    diagnoses=[
        Diagnosis("rank-0-alone", "One rank comes to a collective on a line that no other rank "
                  "reaches, and waits there for all of them. What does an `if rank == …` shut out?",
                  both(every(alone_in_a_collective),
                       lambda e: all(p.case.world == 1 for p in e.passed))),
        Diagnosis("uneven-shares", "It comes to no end where samples cannot be divided evenly: a "
                  "rank with one batch more than another takes a training step that the other "
                  "one never comes to.",
                  both(every(stands_still), only_where(uneven))),
        Diagnosis("plain-loader", "Every rank draws every sample: all do the same work, and an "
                  "epoch is as long as with one rank. Who gives each rank a share?",
                  every(lambda p: p.done and whole_each(p))),
        Diagnosis("own-shuffles", "Every rank draws a share, and the shares overlap. They are "
                  "parts of one whole only if all ranks shuffle it alike.",
                  every(own_shuffles)),
        Diagnosis("never-shuffled", "Every epoch draws the samples in the order in which they "
                  "lie there; they are to be shuffled.",
                  every(lambda p: only("same order")(p) and never_shuffled(p))),
        Diagnosis("no-set-epoch", "The samples are shuffled, and two epochs alike: from what would "
                  "the sampler know that another epoch has begun, and is it told in time?",
                  every(lambda p: only("same order")(p) and not never_shuffled(p))),
        Diagnosis("not-averaged", "The gradients stay where they are made, so each rank trains a "
                  "model of its own. Which module has to be called for them to travel?",
                  both(some(found("not averaged")), every(lambda p: p.done))),
        Diagnosis("stale-gradients", "Gradients of earlier steps are still in .grad when "
                  "backward() adds this step's, so every step goes along the sum of all so far. "
                  "Who clears them?", every(found("stale"))),
        Diagnosis("never-steps", "The model is the same after every epoch.",
                  every(found("standing still"))),
        Diagnosis("accuracy-while-training", "No sample goes through the model after an epoch's "
                  "last training step: the accuracy cannot be that of the weights at the end of "
                  "the epoch, on the whole dataset.",
                  both(some(found("unevaluated")), every(lambda p: p.done and not any(
                      account(p).votes(e) for e in range(len(account(p).drawn)))))),
        Diagnosis("part-evaluated", "Between an epoch's last training step and the next one some "
                  "samples go through no model. The whole dataset is to be evaluated then.",
                  every(lambda p: found("unevaluated")(p) and all(
                      account(p).votes(e) for e in range(len(account(p).drawn))))),
        Diagnosis("local-accuracy", "Each rank reports the accuracy over its own share; the "
                  "counts have to be added up over the ranks before they are divided.",
                  reports("accuracy", local_accuracy)),
        Diagnosis("mean-of-accuracies", "The ranks' accuracies are averaged, though their shares "
                  "differ in size: add up what is counted, then divide once.",
                  both(reports("accuracy", lambda a, e, r: mean(
                      local_accuracy(a, e, k) for k in range(len(a.evaluated[e])))),
                       lambda e: not padded_twice(e))),
        Diagnosis("padding-counted", "The sampler fills the last shares up with samples that it "
                  "has given out already, and the accuracy counts them again.", padded_twice),
        Diagnosis("local-loss", "Each rank reports the loss of its own samples only.",
                  reports("loss", lambda a, e, r: mean(v for b in a.losses[e][r] for v in b))),
        Diagnosis("mean-of-batches", "A smaller last batch counts as much as a full one: the mean "
                  "over samples is asked for, not the mean of the batches' means.",
                  any_of(reports("loss", lambda a, e, r: mean(mean(mean(b) for b in rank)
                                                              for rank in a.losses[e])),
                         reports("loss", lambda a, e, r: mean(map(mean, a.losses[e][r]))))),
        Diagnosis("last-batch", "The loss is that of the epoch's last batch only.",
                  any_of(reports("loss", lambda a, e, r: mean(a.losses[e][r][-1])),
                         reports("loss", lambda a, e, r: mean(v for k in a.losses[e]
                                                              for v in k[-1])))),
        Diagnosis("training-mode", "While it is evaluated, the model is in the mode in which it "
                  "trains: dropout leaves out what it likes, BatchNorm looks at this batch.",
                  every(only("by chance"))),
        Diagnosis("seed-unused", "Another seed changes too little: the weights that training "
                  "begins with, and the order of the samples, are both to come from it. The case "
                  "says what stays.", every(only("seed without effect"))),
        Diagnosis("not-repeatable", "The same seed gives another training the second time. What "
                  "does training begin with that does not come from the seed?",
                  both(every(found("not repeated")),
                       every(only("not repeated", "seed without effect")))),
        Diagnosis("batch-too-large", "More than batch_size samples go through the model of one "
                  "rank at a time.", every(found("batch"))),
        Diagnosis("reduced-twice", "More is reduced in a step than the gradients. Who has averaged "
                  "them already when backward() returns?", every(found("reduced bytes"))),
        Diagnosis("one-call-each", "Every parameter's gradient travels in a call of its own, and "
                  "each call pays the latency. DistributedDataParallel fills buckets.",
                  both(some(found("many calls")), every(found("many calls", "no DDP")))),
        Diagnosis("by-hand", "The gradients are averaged, and by the answer's own calls. It is "
                  "asked for DistributedDataParallel, which sends them while backward() goes on.",
                  every(found("no DDP"))),
    ],
))  # fmt: skip


# ---- accumulate_step: the model's way to a rank and back -------------------------------------


def small_model(case: Case) -> nn.Sequential:
    source = torch.Generator().manual_seed(case.seed + 17)  # its own: checks run side by side
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5))
    with torch.no_grad():
        for p in model.parameters():
            p.uniform_(-0.5, 0.5, generator=source)
    if case.options.get("frozen"):
        model[0].bias.requires_grad_(False)
    return model.to(getattr(torch, case.dtype))


def micro_batches(case: Case, rank: int) -> list[tuple[Tensor, Tensor]]:
    source = torch.Generator().manual_seed(case.seed + 101 * rank + 7 * case.length)
    size, dtype = case.options.get("size", 2), getattr(torch, case.dtype)
    return [(torch.randint(-3, 4, (size, 4), generator=source).to(dtype),
             torch.randint(5, (size,), generator=source)) for _ in range(case.length)]  # fmt: skip


def accumulating(case: Case, rank: int) -> tuple:
    model = small_model(case)
    parameters = list(model.parameters())
    cut = 1 if case.options.get("groups") else len(parameters)
    parts = filter(None, (parameters[:cut], parameters[cut:]))
    optimizer = Descent([{"params": part} for part in parts], lr=LEARNING_RATE)
    wrapped = Packed(model, case.options.get("stale", False))
    return wrapped, optimizer, micro_batches(case, rank), case.options["max_norm"]


# ---- accumulate_step: one process that takes the same step, or a mistaken one ----------------

Gradient = list[Tensor]  # one tensor a parameter


@dataclass
class Pieces:
    """The gradients and losses of every micro-batch, by rank, made in one process."""

    model: nn.Module
    gradients: list[list[Gradient]]  # [rank][micro-batch]
    losses: list[list[float]]
    max_norm: float

    @property
    def ranks(self) -> int:
        return len(self.gradients)

    def after(self, gradient: Gradient) -> Weights:
        """The parameters after a step along it."""
        trained = (p for p in self.model.parameters() if p.requires_grad)
        step = dict(zip(map(id, trained), gradient, strict=True))
        return Weights({k: p.detach() - LEARNING_RATE * step[id(p)]
                        if id(p) in step else p.detach()
                        for k, p in self.model.named_parameters()})  # fmt: skip

    def clip(self, gradient: Gradient) -> Gradient:
        norm = torch.cat([g.flatten() for g in gradient]).norm()
        return times(min(1.0, self.max_norm / (float(norm) + 1e-6)), gradient)


def times(factor: float, gradient: Gradient) -> Gradient:
    return [factor * g for g in gradient]


def total(gradients: Iterable[Gradient]) -> Gradient:
    return [torch.stack(parts).sum(0) for parts in zip(*gradients, strict=True)]


def average(gradients: Iterable[Gradient]) -> Gradient:
    several = list(gradients)
    return times(1 / len(several), total(several))


def pieces(play: Play, call: int = 0) -> Pieces:
    known = play.__dict__.setdefault("_pieces", {})
    if call not in known:
        model = small_model(play.case.call(call))
        trained = [p for p in model.parameters() if p.requires_grad]
        gradients: list[list[Gradient]] = []
        losses: list[list[float]] = []
        for args in play.inputs[call]:
            each = [functional.cross_entropy(model(x), y) for x, y in args[2]]
            gradients.append([list(torch.autograd.grad(loss, trained)) for loss in each])
            losses.append([loss.item() for loss in each])
        known[call] = Pieces(model, gradients, losses, play.inputs[call][0][3])
    return known[call]


def right_step(p: Pieces) -> Weights:
    return p.after(p.clip(average(average(mine) for mine in p.gradients)))


def stepped(play: Play, call: int) -> list[Seen]:
    p = pieces(play, call)
    weights = right_step(p)
    loss = mean(v for mine in p.losses for v in mine)
    return [Seen(loss, (weights, ANYTHING, args[2], args[3])) for args in play.inputs[call]]


def ends_with(says: Callable[[Pieces, int], Weights]) -> When:
    """All weights are what this mistake would have made of them, and not all are right."""

    def when(e: Evidence) -> bool:
        plays = [p for p in e.plays if p.done]
        return bool(e.failed) and all(p.done for p in e.failed) and any(
            "left" in p.kinds() for p in e.failed) and all(
            weights_of(p, r) == says(pieces(p), r) for p in plays for r in range(p.case.world)
            if not p.case.options.get("stale"))  # fmt: skip

    return when


def weights_of(play: Play, rank: int) -> Weights | None:
    args = play.got(rank).args
    return args[0] if args else None


def says_loss(says: Callable[[Pieces, int], float]) -> When:
    """The weights are right, and every rank returns this instead of the global mean."""
    return lambda e: all(only("returned", "type")(p) for p in e.failed) and any(
        "returned" in p.kinds() for p in e.failed) and all(
        same(p.got(r).returned, says(pieces(p), r), 1e-4) for p in e.plays if p.done
        for r in range(p.case.world))  # fmt: skip


def clipped_before_last(p: Pieces, rank: int) -> Weights:
    """What was gathered so far is clipped; the last micro-batch, and the average, are not."""
    k = len(p.gradients[0])
    sums = []
    for mine in p.gradients:
        before = [times(1 / k, g) for g in mine[:-1]]
        kept = [p.clip(total(before))] if before else []
        sums.append(total([*kept, times(1 / k, mine[-1])]))
    return p.after(average(sums))


def clipped_each_time(p: Pieces, rank: int, at_the_end: bool = True) -> Weights:
    """Clipped after every micro-batch's backward, on each rank by itself."""
    k = len(p.gradients[0])
    sums = []
    for mine in p.gradients:
        kept = times(1 / k, mine[0])
        for gradient in mine[1:]:
            kept = total([p.clip(kept), times(1 / k, gradient)])
        sums.append(kept)
    return p.after(p.clip(average(sums)) if at_the_end else average(sums))


def each_clipped(p: Pieces, rank: int) -> Weights:
    """Every rank clips what it has gathered, then all average."""
    return p.after(average(p.clip(average(mine)) for mine in p.gradients))


def stays_local(play: Play) -> bool:
    """Nothing of the gradients was reduced, and the weights are wrong."""
    return (
        play.done
        and "left" in play.kinds()
        and not any(reductions(play, r, 16) for r in range(play.case.world))
    )


def passes(play: Play) -> list[tuple[bool, ...]]:
    """By rank: of each forward pass through DDP, whether its gradients were to be reduced."""
    weights = [weights_of(play, r) for r in range(play.case.world)]
    return [w.passes for w in weights if w is not None]


def reduces_on(play: Play) -> Iterator[Finding]:
    """The wrapper reduces afterwards as it did before."""
    for rank in range(play.case.world):
        weights = weights_of(play, rank)
        if weights is not None and not weights.reduces:
            text = f"rank {rank}: require_backward_grad_sync is False now, it was True"
            yield Finding("left off", text, rank)


def numbers(events: Iterable[Event]) -> int:
    """How many numbers they carry, of whatever dtype."""
    return sum(e.nbytes // getattr(torch, e.dtype).itemsize for e in events if e.dtype)


def once_each(play: Play) -> Iterator[Finding]:
    """The gradients are reduced once: no more numbers than they have, and no fewer."""
    if (n := play.case.world) == 1:
        return
    size = sum(g.numel() for g in pieces(play).gradients[0][0])
    spare = 16 + 2 * play.case.length  # for the loss
    for rank in range(n):
        if (got := numbers(reductions(play, rank, 0))) > size + spare:
            text = f"rank {rank} reduces {got} numbers, the gradients have {size}"
            yield Finding("reduced bytes", text, rank, got, size)
            return
        mine = trace_of(play).of(rank)
        whole = numbers(e for e in mine if e.op != "broadcast" and "gather" not in e.op)
        if whole < size:
            text = f"rank {rank} hands {whole} numbers to reductions, the gradients have {size}"
            yield Finding("not reduced", text, rank, whole, size)
            return


def step_case(world: int, length: int, max_norm: float, seed: int = 0, **rest: Any) -> Case:
    dtype = rest.pop("dtype", "float32")
    return Case(world, length, dtype, seed=seed, options={"max_norm": max_norm, **rest})


def step_core(rng: random.Random) -> list[Case]:
    return [
        step_case(2, 2, 1e6),
        step_case(2, 3, 0.1),
        step_case(3, 2, 0.05, seed=1),
        step_case(3, 4, 100.0, seed=rng.randrange(99)),
        step_case(4, 3, 0.2, seed=rng.randrange(99)),
        step_case(5, 2, 0.1, seed=rng.randrange(99), size=3),
    ]


def step_sturdy(rng: random.Random) -> list[Case]:
    return [step_case(1, 3, 0.1), step_case(crowd(rng), 2, 0.1, seed=rng.randrange(99)),
            step_case(3, 1, 0.1, seed=4), step_case(2, 2, math.inf), step_case(2, 3, 0.1, size=1),
            step_case(2, 2, 0.1, frozen=True), step_case(3, 2, 0.1, dtype="float64"),
            step_case(2, 2, 1e6, stale=True), step_case(2, 2, 0.1, frozen=True, stale=True),
            step_case(2, 2, 0.1, groups=2), step_case(2, 2, 0.0),
            step_case(2, rng.randrange(9, 20), 0.1, seed=5),
            replace(step_case(2, 2, 1e6, seed=6), calls=2)]  # fmt: skip


def smaller_step(case: Case) -> Iterator[Case]:
    rest = {k: v for k, v in case.options.items() if k != "max_norm"}
    for world in range(1, min(case.world, 3) + 1):
        for length in range(1, min(case.length, 3) + 1):
            fewer = step_case(world, length, case.options["max_norm"], dtype=case.dtype, **rest)
            yield replace(fewer, calls=case.calls)


declare(Exercise(
    "06.2", "accumulate_step",
    inputs=accumulating,
    expected=stepped,
    core=step_core,
    sturdy=step_sturdy,
    smaller=smaller_step,
    fits=lambda case: case.world > 1,
    tolerance=1e-4,
    needs=BY_OPTIMIZERS,
    length_is="micro-batches",
    rules=[reduces_on],
    budget=[once_each],
    diagnoses=[
        Diagnosis("through-module", "The forward passes go past DDP to the model inside it. Then "
                  "DDP knows of no backward, reduces nothing, and every rank takes a step of its "
                  "own.", every(lambda p: stays_local(p) and not any(passes(p)))),
        Diagnosis("never-synced", "Where it goes wrong, every forward pass runs inside no_sync, so "
                  "no bucket is ever reduced, and every rank steps along its own gradients.",
                  every(lambda p: stays_local(p) and any(passes(p)) and not any(
                      any(flags) for flags in passes(p)))),
        Diagnosis("unscaled", "The gradients of the micro-batches are added up, so the step is "
                  "that of their sum. A mean over all samples is asked for.",
                  ends_with(lambda p, r: p.after(p.clip(average(total(g) for g in p.gradients))))),
        Diagnosis("only-last", "Only the last micro-batch has a part in the step.",
                  any_of(ends_with(lambda p, r: p.after(p.clip(average(
                      g[-1] for g in p.gradients)))),
                         ends_with(lambda p, r: p.after(p.clip(times(1 / len(
                             p.gradients[0]), average(g[-1] for g in p.gradients))))))),
        Diagnosis("clips-before-sync", "What is clipped is one rank's own gradient. The norm that "
                  "counts is that of the average over all ranks, known when that has been made.",
                  any_of(ends_with(clipped_before_last), ends_with(each_clipped),
                         ends_with(clipped_each_time),
                         ends_with(lambda p, r: clipped_each_time(p, r, at_the_end=False)))),
        Diagnosis("never-clips", "The step is as long as the gradient is; max_norm has no part "
                  "in it.", ends_with(lambda p, r: p.after(average(map(average, p.gradients))))),
        Diagnosis("clips-values", "Each number is clipped by itself. The gradient's norm, over "
                  "all parameters together, is to be at most max_norm.",
                  ends_with(lambda p, r: p.after([g.clamp(-p.max_norm, p.max_norm) for g in
                                                  average(map(average, p.gradients))]))),
        Diagnosis("divides-again", "The gradients are divided by the number of ranks once too "
                  "often: DDP has averaged them, not added them up.",
                  ends_with(lambda p, r: p.after(p.clip(times(1 / p.ranks, average(
                      map(average, p.gradients))))))),
        Diagnosis("no-step", "The weights are as they were.",
                  ends_with(lambda p, r: p.after(times(0.0, average(p.gradients[0]))))),
        Diagnosis("stale", "Gradients left over from before have a part in the step.",
                  both(every(lambda p: bool(p.case.options.get("stale")) and p.done),
                       lambda e: bool(e.passed))),
        Diagnosis("left-off", "The step is right, and DDP is left in a state in which it reduces "
                  "nothing: the caller's next backward() would stay local.",
                  every(lambda p: found("left off")(p) and (
                      p.case.calls > 1 or only("left off")(p)))),
        REMEMBERS,
        Diagnosis("no-norm", "It is wrong only where max_norm is 0: no gradient may pass. That a "
                  "number is 0 does not mean that it is not there.",
                  only_where(lambda p: p.case.options["max_norm"] == 0)),
        Diagnosis("local-loss", "Each rank returns the loss of its own micro-batches.",
                  says_loss(lambda p, r: mean(p.losses[r]))),
        Diagnosis("last-loss", "The loss that comes back is that of the last micro-batch.",
                  any_of(says_loss(lambda p, r: p.losses[r][-1]),
                         says_loss(lambda p, r: mean(mine[-1] for mine in p.losses)))),
        Diagnosis("sum-of-losses", "The losses are added up; their mean is asked for, over the "
                  "micro-batches and over the ranks.",
                  any_of(says_loss(lambda p, r: sum(p.losses[r])),
                         says_loss(lambda p, r: mean(sum(mine) for mine in p.losses)),
                         says_loss(lambda p, r: sum(mean(mine) for mine in p.losses)),
                         says_loss(lambda p, r: sum(v for mine in p.losses for v in mine)))),
        Diagnosis("forward-outside", "no_sync is used, and yet every forward pass lies outside of "
                  "it. It is the forward pass that settles whether its gradients are reduced.",
                  both(some(lambda p: p.case.length > 1), every(found("reduced bytes")),
                       every(lambda p: all(
                      all(flags) for flags in passes(p)) and any(
                      w is not None and w.used_no_sync for w in (
                          weights_of(p, r) for r in range(p.case.world)))))),
        Diagnosis("not-reduced", "The step is right, and no reduction has made it. DDP reduces the "
                  "gradients, once, while it goes backward.",
                  every(found("not reduced"))),
        Diagnosis("syncs-each", "More travels in this step than one reduction of the gradients. "
                  "Adding up micro-batches needs no other rank; the last reduction alone would "
                  "do.",
                  every(found("reduced bytes"))),
    ],
))  # fmt: skip
