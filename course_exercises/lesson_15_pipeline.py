"""Lesson 15: a model cut across its layers, a stage on each rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from course_check import rules
from course_check.cases import Case, drawn
from course_check.cases import rows as cases
from course_check.compare import ANYTHING
from course_check.exercise import Finding, Play, Rule
from course_check.usual_diagnoses import OfPlay, found, says
from course_exercises.declare import each, exercise, marked, over_budget
from course_exercises.drivers.driven import BACKWARD, FORWARD
from course_exercises.drivers.staged import Staged
from course_exercises.formulas import formula
from course_lib.errors import Blocked, Deadlock

FEW, WHOLE = "fewer micro-batches than ranks", "whole numbers"
ONE = FORWARD + BACKWARD  # seconds of a micro-batch on a stage
ROWS = 2  # of a micro-batch
OfRank = Callable[[int, int, int, int], int]  # of i, rank, n, m

# ---- one process ---------------------------------------------------------------------------------


def forward(stages: list[nn.Sequential], x: Tensor) -> tuple[list[Tensor], Tensor]:
    """Each stage's input as a leaf of its own, and what the last stage makes of it."""
    leaves = [x.double() if x.is_floating_point() else x]
    for stage in stages[:-1]:
        leaves.append(stage(leaves[-1]).detach().requires_grad_())
    return leaves, stages[-1](leaves[-1])


def step(
    given: list[tuple[Staged]],
    counts: Callable[[int, int, int, int], bool] = lambda i, rank, n, m: True,
    divisor: Callable[[int, int, int], float] = lambda rank, n, m: m,
    returns: Callable[[list[float]], float] = lambda losses: sum(losses) / len(losses),
    elsewhere: float | None = None,
    held: OfRank = lambda i, rank, n, m: i,
    takes: OfRank = lambda k, rank, n, m: k,
) -> list[float | None]:
    """One process with all stages: the gradient of the mean over micro-batches.

    The rest are mistakes: which micro-batches a rank ``counts``, by what it divides, whose input it
    ``held`` in the backward of micro-batch i, and which one it ``takes`` for its k-th backward.
    """
    jobs = [job for (job,) in given]
    first, last, n, m = jobs[0], jobs[-1], len(jobs), jobs[0].m
    stages = [job.layers.double() for job in jobs]
    passes = [forward(stages, x) for x in first.inputs or []]
    losses = [mse_loss(y, t.double()) for (_, y), t in zip(passes, last.targets or [], strict=True)]
    for k in range(m):
        taken = [takes(k, rank, n, m) for rank in range(n)]
        gradients = back(stages, passes, taken, losses[taken[-1]], held)
        for rank, (job, gradient) in enumerate(zip(jobs, gradients, strict=True)):
            for (name, _), part in zip(job.layers.named_parameters(), gradient, strict=True):
                share = part.float() / divisor(rank, n, m) * counts(k, rank, n, m)
                job.noted[f"{name}.grad"] = job.noted.get(f"{name}.grad", 0) + share
    for job in jobs:
        job.noted["alive"] = ANYTHING
    return [elsewhere] * (n - 1) + [returns([loss.item() for loss in losses])]


def back(
    stages: list[nn.Sequential],
    passes: list[tuple[list[Tensor], Tensor]],
    taken: list[int],
    loss: Tensor,
    held: OfRank,
) -> list[tuple[Tensor, ...]]:
    """By stage, the gradients of its parameters by the micro-batch that it has taken; from the last
    stage on."""
    n, m = len(stages), len(passes)
    out: list[tuple[Tensor, ...]] = []
    upstream = None
    for rank in reversed(range(n)):
        i = taken[rank]
        leaf = passes[i][0][rank]
        y, x = loss if rank == n - 1 else stages[rank](leaf), leaf.detach().clone()
        wanted = [leaf] * (rank > 0)
        if rank:
            leaf.data.copy_(passes[held(i, rank, n, m)][0][rank].data)
        grads = torch.autograd.grad(y, [*stages[rank].parameters(), *wanted], upstream)
        leaf.data.copy_(x)
        out.append(grads[: len(grads) - len(wanted)])
        upstream = grads[-1]
    return out[::-1]


# ---- what ranks are given, and what they may take ------------------------------------------------


def stage_of(case: Case, rank: int) -> tuple[Staged]:
    """Three numbers come in, or a token; ``length`` go from stage to stage, two come out."""
    n, m, width = case.world, case.options["m"], case.length
    tokens = case.options.get("inputs") == WHOLE
    wide = width if rank < n - 1 else 2
    first = nn.Embedding(4, wide) if tokens and not rank else nn.Linear(width if rank else 3, wide)
    for name, p in first.named_parameters():
        p.data = drawn(case, f"{name} {rank}", *p.shape)
    inputs = [drawn(case, f"x {i}", ROWS, 3) for i in range(m)]
    if tokens:
        inputs = [x[:, 0].abs().long() for x in inputs]
    targets = [drawn(case, f"t {i}", ROWS, 2) for i in range(m)]
    own = (inputs if rank == 0 else None, targets if rank == n - 1 else None)
    return (Staged(nn.Sequential(first, nn.Tanh()), *own, m, (ROWS, width)),)


def in_time(play: Play) -> Iterator[Finding]:
    """(m + n − 1)(F + B), and a few messages for each micro-batch and each stage."""
    many = play.case.options["m"] + play.case.world
    least = (many - 1) * ONE
    messages = 4 * many * play.case.network.seconds(4 * ROWS * play.case.length)
    took = play.run.seconds if play.run else 0.0
    if took > least + messages:
        text = f"it takes {took * 1e3:.2f} ms, and (m + n − 1)·(F + B) is {least * 1e3:.0f} ms"
        yield Finding("slow", text)


def may_hold(rank: int, n: int, m: int) -> int:
    return min(m, n - rank)


def holds_few(play: Play) -> Iterator[Finding]:
    """Few micro-batches of a rank have been forward and not backward."""
    for rank in play.ranks if play.done else ():
        limit = may_hold(rank, play.case.world, play.case.options["m"])
        if (mine := alive(play)[rank]) > limit:
            text = f"rank {rank} has {mine} micro-batches between forward and backward"
            yield Finding("alive", f"{text}, at most {limit} are allowed", rank, mine, limit)


def alive(play: Play) -> list[int]:
    return [play.got(rank).args[0]["alive"] for rank in play.ranks]


def neighbours_alone(play: Play) -> Iterator[Finding]:
    for rank in play.ranks:
        for peer in sorted(rules.peers(play, rank) - {rank - 1, rank + 1}):
            yield Finding("peers", f"rank {rank} sends to rank {peer}, which is no neighbour", rank)


def both_send(play: Play) -> bool:
    """Two neighbours wait for one another, each in a send."""
    waits = play.error.waits if isinstance(play.error, Blocked) else []
    sends = {(w.rank, *w.on) for w in waits if "send" in w.call}
    return any((dst, src) in sends for src, dst in sends)


def is_short(case: Case) -> bool:
    return case.options["m"] < case.world


def sends_none(play: Play) -> bool:
    error = str(play.error)
    return found("TypeError")(play) and "Expected parameter `tensor`" in error and "None" in error


def computes_more(play: Play) -> bool:
    """The stages compute more than each micro-batch's forward and backward pass."""
    computed = sum(span.end - span.start for span in play.trace.spans)
    return found("slow")(play) and computed > 1.001 * play.case.options["m"] * play.case.world * ONE


def one_by_one(play: Play) -> bool:
    """No stage works while another one does."""
    alone = play.case.options["m"] * play.case.world * ONE
    return found("slow")(play) and play.run is not None and play.run.seconds >= alone


HINTS = {
    "whose-data": "inputs are rank 0's alone, and targets the last rank's: elsewhere they are "
    "None. Which rank looks at them, or computes the loss?",
    "no-gradient-at-a-boundary": "What is sent is None. Is it a gradient? backward() fills .grad "
    "of leaves that have requires_grad. Was the received tensor one when the stage was called?",
    "graph-across-ranks": "A tensor has no graph to go back through. On which rank does what is "
    "sent have its graph, and with what does backward() begin there?",
    "few-micro-batches": "There are fewer micro-batches than ranks. Which line counts stages where "
    "it should count micro-batches?",
    "whole-numbers": "Only floating-point tensors can require gradients. Who needs the gradient "
    "of rank 0's inputs?",
    "sum": "The gradients are m times too large: that is the sum over micro-batches. What is "
    "divided, how often, and on which rank?",
    "divided-again": "On earlier stages the gradients are too small. What comes back from the next "
    "stage has been divided already.",
    "last-alone": "Only one micro-batch counts in .grad. What happens to those of the others?",
    "one-buffer-for-all": "In backward a stage has another micro-batch's input: autograd keeps the "
    "tensor itself, not a copy. How many micro-batches share one?",
    "crossed": "Some stage takes a gradient for another micro-batch's. In which order do gradients "
    "arrive, and in which does it take what it has kept?",
    "one-loss": "The loss of one micro-batch is returned; the mean over all of them is asked for.",
    "sum-returned": "The sum of the losses is returned; the mean is asked for.",
    "loss-elsewhere": "Only the last rank has a loss. The others return None.",
    "computes-more": "The stages compute more than m·(F + B). How often does a micro-batch go "
    "through each of them?",
    "one-by-one": "No stage works while another one does: it takes m·n·(F + B). Which line keeps "
    "the next micro-batch from setting off?",
    "slow": "Some stage idles longer than the bubble. Does it wait for a message, or to hand one "
    "over, while it could compute?",
}
MISTAKES: dict[str, Any] = {
    "sum": {"divisor": lambda rank, n, m: 1},
    "divided-again": [
        {"divisor": lambda rank, n, m: float(m) ** (n - rank)},
        {"divisor": lambda rank, n, m: float(m) ** (1 + (rank < n - 1))},
    ],
    "last-alone": each(
        counts=[lambda i, rank, n, m: i == m - 1, lambda i, rank, n, m: i == 0],
        divisor=(lambda rank, n, m: m, lambda rank, n, m: 1),
    ),
    "crossed": {"takes": lambda k, rank, n, m: m - 1 - k if rank == n - 1 else k},
    "one-loss": each(returns=(lambda losses: losses[-1], lambda losses: losses[0])),
    "sum-returned": {"returns": sum},
    "loss-elsewhere": {"elsewhere": 0.0},
}
SEEN: dict[str, OfPlay] = {
    "whose-data": says("'NoneType' object is not subscriptable", "'NoneType' object is not iter"),
    "no-gradient-at-a-boundary": sends_none,
    "graph-across-ranks": says("does not require grad"),
    "few-micro-batches": lambda play: found("IndexError")(play) and is_short(play.case),
    "whole-numbers": says("only Tensors of floating point"),
    "computes-more": computes_more,
    "one-by-one": one_by_one,
}
few = partial(cases, "m")
staged = partial(
    exercise,
    inputs=stage_of,
    tolerance=1e-5,
    length_is="width",
    words={
        FEW: "there are fewer micro-batches than ranks. Which loop counts stages where it "
        "should count micro-batches?",
        WHOLE: "inputs are whole numbers. What is done to them that only floats allow?",
    },
    special=lambda case: marked({FEW: is_short(case), WHOLE: case.options.get("inputs") == WHOLE}),
)
BUDGET: list[Rule] = [
    rules.no_collectives,
    neighbours_alone,
    rules.sends_at_most(lambda play: play.case.options["m"] * min(2, play.case.world - 1)),
    rules.messages_of_at_most(lambda play: 4 * ROWS * play.case.length),
    in_time,
]


def usual_cases(rng: Any) -> list[Case]:
    return [
        *few((2, 2, 2), (2, 3, 4), (3, 2, 4), (3, 3, 3), (4, 2, 6), (3, 4, 2), (4, 3, 1)),
        *few((4, rng.randrange(2, 6), rng.randrange(5, 9))),
    ]


def odd_cases(rng: Any) -> list[Case]:
    return [
        *few((1, 3, 3), (1, 2, 1), (2, 4, 1), (8, 2, 10), (6, 2, 3)),
        *few((3, 2, 4), jitter=20.0, calls=2),
        *cases("m inputs", (2, 3, 3, WHOLE)),
    ]


# ---- 15.1 pipeline_step --------------------------------------------------------------------------

staged(
    "15.1 pipeline_step",
    step,
    core=usual_cases,
    sturdy=odd_cases,
    budget=BUDGET,
    hints=HINTS,
    mistakes=MISTAKES | {"one-buffer-for-all": {"held": lambda i, rank, n, m: m - 1}},
    diagnoses=SEEN,
)

# ---- 15.2 one_f_one_b ----------------------------------------------------------------------------


def newest(k: int, rank: int, n: int, m: int) -> int:
    """What the k-th backward takes if it takes the newest of those alive."""
    before = may_hold(rank + 1, n, m)
    return k + before if k + before < m else m - 1 - k


def holds_all(play: Play) -> bool:
    """Every rank has all micro-batches between forward and backward, as in GPipe."""
    return found("alive")(play) and {*alive(play)} == {play.case.options["m"]}


staged(
    "15.2 one_f_one_b",
    step,
    core=lambda rng: usual_cases(rng) + few((2, 2, 4), (3, 3, 5), (4, 4, 2), backend="nccl"),
    sturdy=odd_cases,
    budget=[*BUDGET, holds_few],
    hints=HINTS
    | {
        "unbatched": "It goes well on gloo. On NCCL the calls of a group run one after another, "
        "and a call in front may wait for one that stands behind another. Which two belong in "
        "one batch?",
        "both-send": "Two neighbours each wait until the other takes what they send: one an "
        "activation, one a gradient. Which call starts both at once?",
        "gpipe": "All micro-batches are alive at once on every rank: that is GPipe's order.",
        "holds-more": "Some stage holds more micro-batches than it needs. How many forwards does "
        "rank r make before its first gradient can be there?",
        "slow": "Some stage idles longer than the bubble. How many forwards does rank r make "
        "before its first backward, and what does it wait for then?",
        "waits-for-more": "A rank waits for a neighbour that has returned. Do all stages make m "
        "forwards and m backwards, whatever m is?",
    },
    mistakes=MISTAKES
    | {
        "crossed": [MISTAKES["crossed"], {"takes": newest}],
        "one-buffer-for-all": {"held": lambda i, rank, n, m: min(m, i + may_hold(rank, n, m)) - 1},
    },
    diagnoses=SEEN
    | {
        "unbatched": lambda play: found("Deadlock")(play) and play.case.backend == "nccl",
        "both-send": both_send,
        "waits-for-more": lambda play: isinstance(play.error, Deadlock) and not play.error.cycle,
        "gpipe": holds_all,
        "holds-more": over_budget("alive"),
    },
)

# ---- 15.3 bubble ---------------------------------------------------------------------------------

OfThree = Callable[[int, int, int], float]


def idle_share(
    n: int,
    m: int,
    v: int,
    idle: OfThree = lambda n, m, v: n - 1,
    whole: OfThree = lambda n, m, v: v * m + n - 1,
) -> float:
    """(n − 1) / (v·m + n − 1): Narayanan and others 2021, over the time in place of the work."""
    return idle(n, m, v) / whole(n, m, v)


formula(
    "15.3 bubble",
    idle_share,
    core=lambda rng: [
        (2, 4, 1),
        (4, 8, 1),
        (4, 8, 2),
        *((rng.randrange(3, 65), rng.randrange(2, 129), rng.randrange(1, 9)) for _ in range(6)),
    ],
    sturdy=lambda rng: [(1, 4, 1), (8, 1, 1), (4, 2, 3)],
    roundings=(float,),
    hints={
        "of-the-work": "That is idle time divided by working time. Divide by the whole time.",
        "busy": "That is the share in which a stage works.",
        "one-less": "Work out two stages and one micro-batch by hand: how many steps are there, "
        "and in how many does stage 0 idle?",
        "percent": "A share lies between 0 and 1, and this is a hundred times as much.",
        "v-misplaced": "With v stages on each rank a micro-batch makes v stops there, each a v-th "
        "as long. What does that change, the idle time, the working time or both?",
    },
    mistakes={
        "of-the-work": {"whole": lambda n, m, v: v * m},
        "busy": {"idle": lambda n, m, v: v * m},
        "one-less": [
            {"whole": lambda n, m, v: v * m + n},
            {"whole": lambda n, m, v: v * (m - 1) + n - 1},
            {"idle": lambda n, m, v: n},
            {"idle": lambda n, m, v: n, "whole": lambda n, m, v: v * m + n},
        ],
        "percent": {"idle": lambda n, m, v: 100 * (n - 1)},
        "v-misplaced": [
            {"whole": lambda n, m, v: m + n - 1},
            {"whole": lambda n, m, v: v * (m + n - 1)},
            {"idle": lambda n, m, v: v * (n - 1)},
            {"idle": lambda n, m, v: v * (n - 1), "whole": lambda n, m, v: m + v * (n - 1)},
            {"idle": lambda n, m, v: v * n - 1, "whole": lambda n, m, v: m + v * n - 1},
            {"idle": lambda n, m, v: v * n - 1, "whole": lambda n, m, v: v * m + v * n - 1},
        ],
    },
)
