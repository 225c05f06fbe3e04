"""Lesson 13: a model that no rank could hold. Memory is a budget here: bytes of tensors alive."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from math import ceil, floor, inf, prod, sqrt
from operator import eq, ge
from typing import Any

import torch
from torch import Tensor, nn

from course_check import rules
from course_check.cases import Case, crowd, drawn, rows, tensor
from course_check.compare import ANYTHING, COUNTED, same
from course_check.exercise import Finding, Play
from course_check.usual_diagnoses import found, only, says
from course_exercises import gradients
from course_exercises.declare import each, exercise, marked, over_budget
from course_exercises.drivers.driven import BothWays
from course_exercises.drivers.sharded import ALL_ZERO, Clipping, Layers, Optimizing
from course_exercises.gradients import passes
from course_lib.errors import Mismatch
from course_lib.trace import Event, Span
from course_sim.costs import textbook_seconds

LAUNCH = 5e-6  # seconds of a modelled GPU's host for each call

# ---- what several of them ask --------------------------------------------------------------------


def sent(e: Event, n: int) -> float:
    """The bytes that a rank sends in a call, by the best algorithm: with a root, on average."""
    ways = 2 if e.op.startswith("all_reduce") else 1
    return e.nbytes if e.is_send else 0 if e.is_recv else ways * e.nbytes * (n - 1) / n


def left_over(case: Case) -> bool:
    """Whether n does not divide the length of something that is cut."""
    words = case.options["shapes"].split()
    return any(prod(map(int, w.strip("cd").split("x"))) % case.world for w in words)


def of_other_lengths(play: Play) -> bool:
    """A call ends the play: what it is given has another length than what it fills."""
    shapes = re.search(r"not (\[.*?\]) of .* and (\[.*?\]) of", str(play.error))
    said = says(" and expects ", "which expects", "tensors or blocks, one per rank")(play)
    if isinstance(play.error, Mismatch):
        said = said or (play.error.what == "shape" and len(set(play.error.lines)) == 1)
    return (shapes[1] != shapes[2] if shapes else said) and left_over(play.case)


LEFT_OVER = "n does not divide a length. The last piece ends in padding."
NOT_PADDED = (
    "n does not divide this length, and what a call is given has another length than what it "
    "fills. Pad what is cut to n equal pieces, and cut the padding off again."
)


# ---- 13.1 ShardedOptimizer -----------------------------------------------------------------------

# By a case's word an optimizer's options, and how many tensors of a parameter's size a step leaves.
MADE: dict[str, tuple[dict[str, Any], int]] = {
    "SGD": ({"momentum": 0.5}, 1),
    "Adam": ({}, 2),
    "AdamW": ({"weight_decay": 0.25}, 2),
    "Adam amsgrad": ({"amsgrad": True}, 3),
}
NONE_SOMEWHERE, NONE_ANYWHERE = "None on some rank", "None on all ranks"
ZERO_ANYWHERE = "zero on all ranks"
GENERATOR = {"params": "a generator"}


def of_elements(params: list[Tensor], n: int, cut: Callable) -> list[Tensor]:
    """By parameter the owner of each element, where each parameter is cut into n pieces."""
    return [torch.arange(p.numel()).view_as(p) // max(cut(p.numel() / n), 1) for p in params]


def by_parameter(params: list[Tensor], n: int, cut: Callable) -> list[Tensor]:
    return [torch.full(p.shape, k % n) for k, p in enumerate(params)]


def cut_so(p: Tensor, n: int, pieces: Callable[[Tensor, int], Tensor]) -> Tensor:
    """A parameter that consists of these n pieces of its padded numbers."""
    padded = nn.functional.pad(p.flatten(), (0, -p.numel() % n))
    return pieces(padded, n).reshape(-1)[: p.numel()].view_as(p)


def moved(
    jobs: list[Optimizing],
    whose: list[Optimizing],
    divisor: Callable[[int, int], float] = lambda n, there: n,
    stays: Callable[[Iterable[bool]], bool] = all,
    zeros: bool = False,
    again: bool = False,
    pieces: Callable[[Tensor, int], Tensor] = lambda padded, n: padded,
    stale: bool = False,
) -> list[list[Tensor]]:
    """By step all parameters, moved with the mean of these jobs' gradients."""
    job, out = jobs[0], []
    params = [nn.Parameter(cut_so(p.detach(), len(jobs), pieces).clone()) for p in job.params]
    make = partial(getattr(torch.optim, job.make), params, foreach=False, **job.options)
    made = make()
    for step in range(len(job.seeds)):
        for number, p in enumerate(params):
            grads = [one.gradient(step, number) for one in whose]
            there = [g.double() for g in grads if g is not None]
            p.grad = torch.zeros_like(p) if zeros else p.grad if stale else None
            if there and not stays(g is None for g in grads):
                p.grad = (sum(there) / divisor(len(grads), len(there))).to(p.dtype)  # type: ignore[union-attr]
        made.step()
        made = make() if again else made
        out.append([p.detach().clone() for p in params])
    return out


def optimize(
    given: list[tuple[Optimizing]],
    own: bool = False,
    whose: Callable = lambda params, n, cut: [torch.tensor(0)] * len(params),
    cut: Callable[[float], int] = ceil,
    hears: bool = True,
    keeps: bool = False,
    **knobs: Any,
) -> None:
    """One process's steps with the mean gradients; None counts as zero, and where all have None
    nothing moves. The rest are mistakes: in the gradients, and in whose elements a rank moves,
    with its ``own`` gradients, and which it ``hears`` of."""
    jobs = [job for (job,) in given]
    n, old = len(jobs), [p.detach().clone() for p in jobs[0].params]
    used = [[job] for job in jobs] if own else [jobs]
    worlds, owners = [moved(jobs, u, **knobs) for u in used], whose(old, n, cut)
    for rank, job in enumerate(jobs):
        for step in range(len(job.seeds)):
            values = [value.clone() for value in old]
            for k, value in enumerate(values):
                for owner in range(n) if hears else [rank]:
                    new = worlds[owner if own else 0][step][k]
                    value.copy_(torch.where(owners[k] == owner, new, value))
            job.notes(step, values, [not keeps] * len(values))
        if job.is_counted:
            job.noted |= COUNTED


def a_step(case: Case, rank: int) -> tuple[Optimizing]:
    """Parameters of the shapes that the case says; ``d`` behind one makes it of float64, ``c`` lays
    it out by channels, as a Conv2d's weight may be. Of the first one gradients are missing: the
    second step's everywhere, or all of the last rank's."""
    o, is_last = case.options, rank == case.world - 1
    params: list[nn.Parameter] = []
    seeds: list[list[int | None]] = []
    for k, word in enumerate(o["shapes"].split()):
        shape = [int(size) for size in word.strip("cd").split("x")]
        dtype = torch.float64 if "d" in word else getattr(torch, case.dtype)
        numbers = torch.randint(8, 25, shape, generator=torch.Generator().manual_seed(k + 1))
        order = torch.channels_last if "c" in word else torch.contiguous_format
        params.append(nn.Parameter((numbers / 8).to(dtype, memory_format=order)))
    for step in range(o.get("steps", 2)):
        seeds.append([case.random(step, k, rank).randrange(1 << 31) for k in range(len(params))])
        if {NONE_ANYWHERE: step == 1, NONE_SOMEWHERE: is_last}.get(o.get("gradient", "")):
            seeds[-1][0] = None
        if step == 1 and o.get("gradient") == ZERO_ANYWHERE:
            seeds[-1][0] = ALL_ZERO
    options = {"lr": 0.125} | MADE[o["make"]][0]
    return (Optimizing(params, o["make"].split()[0], options, seeds, "params" in o),)


def share(play: Play) -> int:
    """Bytes of a rank's part of the parameters, rounded up by dtype."""
    params, n = play.given(0).params, play.case.world
    dtypes = Counter[torch.dtype]()
    for p in params:
        dtypes[p.dtype] += p.numel()
    return sum(ceil(length / n) * dtype.itemsize for dtype, length in dtypes.items())


def may_rest_at(play: Play, rank: int) -> int | None:
    """Parameters, and a share of them and of the states; of small models nobody counts."""
    job = play.given(0)
    most = sum(p.nbytes for p in job.params) + 8 * len(job.params) + 256
    states = MADE[play.case.options["make"]][1]
    return most + (states + 1) * share(play) if job.is_counted else None


def few_bytes(play: Play) -> Iterator[Finding]:
    """Per step reduce_scatter and all_gather, each parameter padded by itself, and a few words:
    who has which gradients may be said in objects, too."""
    job, n = play.given(0), play.case.world
    padding = sum(2 * (n - 1) * p.itemsize + 16 for p in job.params)
    most = 2 * (n - 1) * share(play) + padding + 64 * n
    for rank in range(n):
        steps = rules.between_barriers(play, rank)[: len(job.seeds)]
        for number, calls in enumerate(steps, 1):
            mine = sum(sent(e, n) for e in calls)
            if mine > most:
                text = f"rank {rank} sends {mine:,.0f} bytes in step {number}, at most {most:,}"
                yield Finding("too-many-bytes", text, rank, mine, most)


def of_unequal_owners(play: Play) -> bool:
    """Some hold too much and others do not, and what travels are whole parameters."""
    sizes = {p.nbytes for p in play.given(0).params}
    events = [e for e in play.trace.events if e.op == "broadcast"]
    return over_budget("memory", "too-many-bytes")(play) and any(e.nbytes in sizes for e in events)


def reduces_whole(play: Play) -> bool:
    return over_budget("too-many-bytes")(play) and any(
        e.op.startswith("all_reduce") and e.nbytes > 16 * len(play.given(0).params)
        for e in play.trace.events
    )


def optimizing(world: int, shapes: str, make: str = "SGD", none: str = "", **rest: Any) -> Case:
    options = {"shapes": shapes, "make": make, **({"gradient": none, "steps": 3} if none else {})}
    return Case(world, options=options | rest.pop("options", {}), **rest)


exercise(
    "13.1 ShardedOptimizer",
    optimize,
    inputs=a_step,
    tolerance=1e-6,
    words={
        **dict.fromkeys(["shapes", "make"]),
        NONE_SOMEWHERE: "a gradient is None on some rank. It counts as zero, with the same calls.",
        NONE_ANYWHERE: "a gradient is None on all ranks. The parameter and its state stay.",
        ZERO_ANYWHERE: "a gradient is zero on all ranks. It is there: averages go on with it.",
        "a generator": "params is a generator. It can be gone through once.",
        "a remainder": LEFT_OVER,
        "two dtypes": "parameters have two dtypes. One flat tensor has one.",
        "channels last": "a parameter does not lie row by row in memory. view(-1) refuses that.",
        "few elements": "a parameter has fewer elements than there are ranks.",
    },
    special=lambda case: marked(
        {
            "a remainder": left_over(case),
            "two dtypes": "d" in case.options["shapes"],
            "channels last": "c" in case.options["shapes"],
            "few elements": any(w.strip("d") in ("1", "2") for w in case.options["shapes"].split()),
        }
    ),
    core=lambda rng: [
        optimizing(2, "4"),
        optimizing(2, "3"),
        optimizing(3, "2x3 4", "Adam", options=GENERATOR),
        optimizing(2, "2x4 4", none=NONE_SOMEWHERE),
        optimizing(2, "4 4", none=NONE_ANYWHERE),
        optimizing(3, "4 5", "Adam", none=NONE_ANYWHERE),
        optimizing(2, "4 4", "Adam", none=ZERO_ANYWHERE),
        optimizing(4, f"{rng.randrange(3, 9)}x{rng.randrange(5, 9)} 7 6", "AdamW"),
        optimizing(5, "9x3 11", options=GENERATOR),
        optimizing(2, "40x60 50x50 101", "Adam"),
        optimizing(4, "61x35 70x50", "SGD"),
    ],
    sturdy=lambda rng: [
        optimizing(1, "3 2x2", "Adam"),
        optimizing(3, "1 2 7"),
        optimizing(2, "4 4d 3", "Adam"),
        optimizing(2, "2x3x2x2c 4"),
        optimizing(2, "3 4", dtype="bfloat16"),
        optimizing(crowd(rng), "3x7 5"),
        optimizing(2, "6 5", "Adam amsgrad"),
        optimizing(3, "7 5", "AdamW", none=NONE_ANYWHERE),
        optimizing(3, "50x70 31x31d", "Adam amsgrad"),
    ],
    budget=[rules.rests_at(may_rest_at), few_bytes],
    hints={
        "sum": gradients.HINTS["sum"],
        "divided-twice": gradients.HINTS["divided-twice"],
        "one-too-few": gradients.HINTS["one-too-few"],
        "own-gradient": "Each piece is moved by its owner's gradient, and not by the ranks' mean.",
        "counts-those-there": "A gradient that is None counts as zero in the mean over all ranks.",
        "none-moves": "A parameter whose gradient is None on all ranks moves, or its optimizer's "
        "state does. (One flat parameter for all cannot leave a part of itself out.)",
        "others-stay": "Each rank moves its own piece, and the others never hear of it.",
        "rest-stays": "n does not divide the length, and what is left over is nobody's.",
        "gradient-stays": "After zero_grad() the whole parameters still hold a gradient.",
        "state-lost": "Momentum, averages or counts begin anew at every step.",
        "nothing-moves": "The caller's parameters stay as they are. Either the inner optimizer "
        "steps other tensors than the pieces that are gathered, or the result is not written "
        "into the parameters, in place.",
        "same-piece": "All ranks begin with the first piece. Which one is this rank's?",
        "stale-gradient": "A piece moves by an earlier step's gradient where this step has none. "
        "The pieces' gradients have to go as well.",
        "skips-none": "A rank without a gradient leaves a call out that the others make, or takes "
        "None for a tensor. It contributes zeros. Ask all ranks whether all have None.",
        "by-parameter": "Whole parameters have an owner each: that of the largest holds too much.",
        "interleaved": "Pieces are taken in another order than reduce_scatter and all_gather have: "
        "they work in blocks, and rank 0 has the first.",
        "needs-all": "A parameter stays as soon as one rank has no gradient for it. It stays where "
        "all have None; otherwise a missing one counts as zero.",
        "not-padded": NOT_PADDED,
        "holds-too-much": "More is alive at rest than the parameters and a share of the rest. Are "
        "states made of whole parameters? Do the pieces keep their gradients after step()? Or is "
        "a flat copy alive, or a whole of which the piece is a view?",
        "all-reduced": "An all_reduce brings every rank the whole mean. Which collective brings "
        "each rank its piece alone?",
        "too-many-bytes": "A step needs one reduce_scatter and one all_gather of everything.",
    },
    mistakes={
        "gradient-stays": {"keeps": True},
        "sum": {"divisor": lambda n, there: 1},
        "divided-twice": {"divisor": lambda n, there: n**2},
        "one-too-few": {"divisor": lambda n, there: n - 1},
        "counts-those-there": {"divisor": lambda n, there: there},
        "none-moves": {"zeros": True},
        "own-gradient": each(own=[True], whose=(of_elements, by_parameter)),
        "others-stay": each(whose=(of_elements, by_parameter), hears=[False]),
        "rest-stays": {"whose": of_elements, "cut": floor},
        "state-lost": {"again": True},
        "interleaved": {"pieces": lambda padded, n: padded.view(-1, n).t()},
        "same-piece": {"pieces": lambda padded, n: padded.view(n, -1)[:1].expand(n, -1)},
        "stale-gradient": {"stale": True},
        "needs-all": {"stays": any},
        "nothing-moves": {"whose": lambda params, n, cut: [torch.tensor(n)] * len(params)},
    },
    diagnoses={
        "skips-none": lambda p: (
            found("Mismatch", "Deadlock", "AttributeError", "TypeError")(p)
            and "gradient" in p.case.options
        ),
        "not-padded": of_other_lengths,
        "by-parameter": of_unequal_owners,
        "holds-too-much": over_budget("memory"),
        "all-reduced": reduces_whole,
    },
)

# ---- 13.2 gathered_linear ------------------------------------------------------------------------


def piece(whole: Tensor, rank: int, n: int) -> Tensor:
    """A rank's of n equal flat pieces, padded with zeros."""
    k = ceil(whole.numel() / n)
    flat = torch.cat([whole.flatten(), whole.new_zeros(n * k - whole.numel())])
    return flat[rank * k : (rank + 1) * k].clone()


def linear(
    given: list[tuple[BothWays]],
    share: Callable[[Tensor, int], Tensor | None] = lambda by_rank, rank: by_rank.mean(0),
    of_x: Callable[[Tensor, int], Tensor | None] = lambda by_rank, rank: by_rank[rank],
    forward: Callable[[Tensor, int, int], Tensor] = Tensor.view,
    backward: Callable[[Tensor, Tensor], Tensor] = lambda grad, x: grad,
) -> None:
    """One process that has all of W. The rest are mistakes."""
    jobs = [job for (job,) in given]
    rows, columns = jobs[0].rest[0]
    flat = torch.cat([job.given["shard"] for job in jobs]).double()[: rows * columns]
    xs = [job.given["x"].double() for job in jobs]
    ys = [job.upstream.double() for job in jobs]
    of_w = [torch.einsum("...r,...c->rc", y, x) for x, y in zip(xs, ys, strict=True)]
    of_w = [backward(grad, x).flatten() for grad, x in zip(of_w, xs, strict=True)]
    of_xs = torch.stack(ys) @ flat.view(rows, columns)
    for rank, job in enumerate(jobs):
        mean = share(torch.stack(of_w), rank)
        made = {
            "output": xs[rank] @ forward(flat, rows, columns).t(),
            "x.grad": None if job.constant else of_x(of_xs, rank),
            "shard.grad": None if mean is None else piece(mean, rank, len(jobs)),
        }
        dtype = job.upstream.dtype
        job.noted |= {name: t if t is None else t.to(dtype) for name, t in made.items()}
        job.noted |= COUNTED


def a_linear(case: Case, rank: int) -> tuple[BothWays]:
    o = case.options
    rows, columns = map(int, o["shapes"].split("x"))
    whole, batch = drawn(case, "W", rows, columns), o.get("batch", (2,))
    x, dy = (
        drawn(case, f"{name} {rank}", *batch, k)
        for name, k in zip("xy", (columns, rows), strict=True)
    )
    shard = piece(whole, rank, case.world)
    if o.get("samples") == ONE_WITHOUT and rank == case.world - 1:
        x, dy = x[:0], dy[:0]
    constant = ["x"] if o.get("x needs") == NO_GRADIENT else []
    return (BothWays({"x": x, "shard": shard}, ((rows, columns),), dy, constant, BETWEEN),)


NO_GRADIENT, BETWEEN = "no gradient", "between forward and backward"
ONE_WITHOUT = "none on the last rank"
FEW = 1024  # bytes


def little_more(play: Play, rank: int) -> int:
    job = play.given(rank)
    return sum(t.nbytes for t in (*job.given.values(), job.upstream, job.upstream)) + FEW


def keeps_w(play: Play) -> bool:
    """As much is alive as W takes, beside what may be."""
    rows, columns = play.given(0).rest[0]
    w = rows * columns * play.given(0).upstream.itemsize
    over = [f.got - f.want + FEW for f in play.over_budget if f.kind == "memory"]
    return over_budget("memory")(play) and max(over) >= w


def gathers_and_scatters(play: Play) -> Iterator[Finding]:
    """An all_gather forward; an all_gather, where it is needed, and a reduce_scatter backward."""
    for rank, when, calls in passes(play):
        ops = [e.op for e in calls]
        gathers = sum(op.startswith("all_gather") for op in ops)
        scatters = sum(op.startswith("reduce_scatter") for op in ops)
        most = (1, 0) if when == "forward" else (1, 1)
        if gathers > most[0] or scatters > most[1] or gathers + scatters < len(ops):
            yield Finding("calls", f"rank {rank} calls {', '.join(ops)} {when}", rank)


exercise(
    "13.2 gathered_linear",
    linear,
    inputs=a_linear,
    tolerance=1e-5,
    words={
        "shapes": None,
        "a remainder": LEFT_OVER,
        "leading dimensions": "x has one dimension, or three. Only its last one is W's.",
        NO_GRADIENT: "x needs no gradient. The shard does.",
        ONE_WITHOUT: "the last rank alone has no samples. It makes the same calls as the others.",
        "no samples": "x has no rows. A rank without samples makes the same calls.",
    },
    special=lambda case: marked(
        {
            "a remainder": left_over(case),
            "leading dimensions": len(case.options.get("batch", (2,))) != 1,
            "no samples": case.options.get("batch") == (0,),
        }
    ),
    core=lambda rng: [
        *rows("shapes", (2, 0, "2x2"), (2, 0, "1x2"), (2, 0, "3x3"), (3, 0, "2x4"), (4, 0, "3x5")),
        *rows("shapes batch", (2, 0, "4x3", (2, 3)), (3, 0, "4x3", ())),
        *rows("shapes", (5, 0, f"{rng.randrange(2, 7)}x{rng.randrange(2, 7)}")),
        Case(2, options={"shapes": "3x4", "x needs": NO_GRADIENT}),
        *rows("shapes", (2, 0, "40x50"), (4, 0, "60x45")),
    ],
    sturdy=lambda rng: [
        *rows("shapes", (1, 0, "2x3"), (crowd(rng), 0, "2x3")),
        Case(3, options={"shapes": "2x2", "batch": (0,)}),
        Case(2, options={"shapes": "2x2", "samples": ONE_WITHOUT}),
        *rows("shapes", (2, 0, "3x5"), (3, 0, "30x70"), dtype="float64"),
        *rows("shapes", (3, 0, "1x1")),
    ],
    budget=[rules.holds_at_most(BETWEEN, little_more), gathers_and_scatters],
    hints={
        "sum": "The gradient of the shard is the sum over the ranks, not the mean.",
        "own-gradient": "The gradient of a shard comes from its rank's own samples alone. Every "
        "rank's samples used this piece of W.",
        "no-gradient": "No gradient reaches the shard: what a collective fills has no history.",
        "x-averaged": "The gradient of x is averaged. Each rank's samples are its own.",
        "x-without": "x gets no gradient. Layers before this one will need it.",
        "divided-twice": gradients.HINTS["divided-twice"],
        "transposed": "W, or its gradient, is taken for (inputs, outputs).",
        "by-samples": "The gradient of the shard is divided by the number of samples. y's gradient "
        "already says how much each of them counts.",
        "not-padded": NOT_PADDED,
        "weight-saved": "W, or what it was made of, is still alive between forward and backward: "
        "saved for backward, kept on ctx, or in a closure. In backward it can be gathered again.",
        "holds-too-much": "More is alive between forward and backward than x, shard and y: a copy "
        "of one of them, or something made on the way. The largest are named above.",
        "whole-gradient": "What backward returns for the shard has another shape than the shard. "
        "Each rank returns the gradient of its own piece.",
        "calls": "Count the calls: an all_gather forward; backward another, and a reduce_scatter "
        "that brings each rank the gradient of its own shard.",
    },
    mistakes={
        "sum": {"share": lambda by_rank, rank: by_rank.sum(0)},
        "own-gradient": each(share=[lambda all, r: all[r], lambda all, r: all[r] / len(all)]),
        "no-gradient": {"share": lambda by_rank, rank: None},
        "x-averaged": {"of_x": lambda by_rank, rank: by_rank.mean(0)},
        "x-without": {"of_x": lambda by_rank, rank: None},
        "divided-twice": {"share": lambda by_rank, rank: by_rank.mean(0) / len(by_rank)},
        "transposed": [
            {"forward": lambda flat, rows, columns: flat.view(columns, rows).t()},
            {"backward": lambda grad, x: grad.t()},
        ],
        "by-samples": {"backward": lambda grad, x: grad / max(1, x.numel() // x.shape[-1])},
    },
    diagnoses={
        "not-padded": of_other_lengths,
        "weight-saved": keeps_w,
        "holds-too-much": over_budget("memory"),
        "whole-gradient": says("returned an invalid gradient"),
    },
)


# ---- 13.3 prefetched -----------------------------------------------------------------------------


def sums(
    given: list[tuple[Layers]],
    of: Callable[[list[Tensor], int], Tensor] = lambda all, rank: torch.stack(all).sum(),
    order: Callable[[list], list] = list,
) -> None:
    """The sum of each layer. The rest are mistakes."""
    for rank, (job,) in enumerate(given):
        columns = zip(*([shard for _, shard in other.layers] for (other,) in given), strict=True)
        job.noted["sums"] = order([of([s.sum() for s in shards], rank) for shards in columns])
        job.noted |= COUNTED | {"reads": ANYTHING, "spare while computing": ANYTHING}


def some_layers(case: Case, rank: int) -> tuple[Layers]:
    """Each computes about as long as a gather of the middle size takes; sizes differ."""
    ms, lengths = case.options["ms"], case.options["lengths"]
    shards = [
        tensor(Case(case.world, k, numbers="random", seed=i), rank) for i, k in enumerate(lengths)
    ]  # each other numbers
    return (Layers([(ms * 1e-3, shard) for shard in shards]),)


def due(play: Play, rank: int) -> list[tuple[float, float]]:
    """When each layer's gather and its computing end at best, two layers being whole at once."""
    network, n = play.case.network, play.case.world
    start = next(e for e in play.trace.of(rank) if e.op == "barrier").completed or 0.0
    ends = [(start, start)] * 2
    for seconds, shard in play.given(rank).layers:
        gather = textbook_seconds(
            "all_gather", n, n * shard.nbytes, network.latency, 1 / network.bandwidth
        )
        whole = max(ends[-1][0], ends[-2][1]) + gather
        ends.append((whole, max(ends[-1][1], whole) + seconds))
    return ends


def in_step(play: Play) -> Iterator[Finding]:
    """A gather for each layer, in order, the next but one not before a layer has been used; and
    all in the time of the recursion."""
    for rank in play.ranks:
        layers, ends = play.given(rank).layers, due(play, rank)
        calls = [e for e in play.trace.of(rank) if e.op != "barrier"]
        gathers = [e.nbytes for e in calls if e.op.startswith("all_gather")]
        sizes = [play.case.world * shard.nbytes for _, shard in layers]
        if gathers != sizes or len(calls) != len(layers):
            is_padded = len(gathers) == len(calls) == len(sizes) and all(map(ge, gathers, sizes))
            said = ", ".join(f"{e.op} of {e.nbytes} bytes" for e in calls) or "nothing"
            yield Finding("padded" if is_padded else "calls", f"rank {rank} calls {said}", rank)
            continue
        computed = [s for s in play.trace.spans if (s.rank, s.name) == (rank, "compute")]
        if [round(s.end - s.start, 9) for s in computed] != [round(s, 9) for s, _ in layers]:
            yield Finding("computes", f"rank {rank} computes {len(computed)} times", rank)
            continue
        slack = LAUNCH * 3 * (len(calls) + 1)
        for k, (e, span) in enumerate(zip(calls, computed, strict=True)):
            if k > 1 and e.issued < computed[k - 2].end - 1e-9:
                text = f"the gather of layer {k + 1} begins after {1e3 * e.issued:.3f} ms, layer "
                yield Finding("too-early", f"rank {rank}: {text}{k - 1} is used until then", rank)
            if span.start < (e.completed or 0.0) - 1e-9:
                text = f"layer {k + 1} is computed before its gather is over"
                yield Finding("not-whole", f"rank {rank}: {text}", rank)
        if computed and computed[-1].end > ends[-1][1] + slack:
            got, best = (1e3 * (end - ends[0][0]) for end in (computed[-1].end, ends[-1][1]))
            text = f"rank {rank} is done after {got:.3f} ms, and could be after {best:.3f} ms"
            yield Finding("late" if beside(calls, computed) else "one-by-one", text, rank)


def beside(calls: list[Event], spans: list[Span]) -> bool:
    """Whether some call runs while something else does."""
    times = [(e.issued, e.completed or e.issued) for e in calls]
    return any(start < s.end - 1e-9 and s.start < end - 1e-9 for s in spans for start, end in times)


def two_layers(play: Play, rank: int) -> int:
    """Bytes of the shards, of two layers as large as the largest, and some words."""
    sizes = [0, *(shard.nbytes for _, shard in play.given(rank).layers)]
    return sum(sizes) + 2 * play.case.world * max(sizes) + 1024


def always_whole(play: Play) -> Iterator[Finding]:
    """The layer that is being computed is there, and the host waits for no number."""
    for rank in play.ranks:
        noted = seen if isinstance(seen := play.got(rank).args[0], dict) else {}
        if (noted.get("spare while computing") or 0) < 0:
            text = f"rank {rank} computes a layer that it does not hold"
            yield Finding("freed-early", text, rank)
        if noted.get("reads", 0) != 0:
            yield Finding("stands-still", f"rank {rank} waits for a number in a tensor", rank)


def other_kinds(play: Play) -> bool:
    """What is returned is no list of tensors without dimension."""
    got = play.got(0).args[0].get("sums") if play.done else []
    return not isinstance(got, list) or not all(isinstance(t, Tensor) and t.dim() == 0 for t in got)


in_layers = partial(rows, "lengths ms", bandwidth=1e7, backend="nccl")

exercise(
    "13.3 prefetched",
    sums,
    inputs=some_layers,
    special=lambda case: marked(
        {
            "no layers": not case.options["lengths"],
            "one layer": len(case.options["lengths"]) == 1,
        }
    ),
    words={
        "no layers": "there are no layers. Then nothing is gathered, and there is no sum.",
        "one layer": "there is one layer. Then one gather is issued, and no second one.",
    },
    core=lambda rng: [
        *in_layers((2, 0, (5,), 0.1), (2, 0, (200, 300), 0.2), (3, 0, (40, 90, 60), 0.3)),
        *in_layers((2, 0, (2500, 2000, 3000, 1500, 2500), 1.0)),
        *in_layers((4, 0, tuple(rng.randrange(300, 900) for _ in range(6)), 0.5)),
        *in_layers((3, 0, (40, 50, 60), 0.1), backend="gloo"),
    ],
    sturdy=lambda rng: [
        *in_layers((1, 0, (4, 5, 6), 0.1), (2, 0, (), 0.1), (8, 0, (30, 90, 20, 40), 0.2)),
        *in_layers((3, 0, (600, 200, 700, 200), 0.3)),
    ],
    budget=[in_step, rules.peaks_at(two_layers), always_whole],
    hints={
        "own-sum": "A sum is made of the rank's own shard. A layer's sum is that of the whole.",
        "another-order": "The sums are there, in another order.",
        "other-kinds": "It should return a list of tensors without dimension.",
        "padded": "The calls are right, and carry more bytes than the layers have. Each layer has "
        "a length of its own.",
        "calls": "Each layer is gathered once, whole, in order; nothing else is called.",
        "computes": "Each layer is computed once, in order, for the seconds that belong to it.",
        "not-whole": "A layer is computed before its gather is over.",
        "too-early": "A gather begins before the layer two places back has been used.",
        "freed-early": "A layer is freed, and computed afterwards.",
        "one-by-one": "No gather runs while a layer is computed: each is waited for at once, or "
        "issued after computing, behind which it queues up.",
        "stands-still": "The host waits for the number in a tensor: item(), float(), int(), `if`.",
        "late": "It is done later than it could be. Does a gather begin later than when the layer "
        "two places back has been used? Does some computing wait for more than its own layer?",
        "kept": "More than two layers are alive at once. What still refers to one that has been "
        "used: a list, a Work, a view, a closure?",
    },
    mistakes={
        "own-sum": each(of=[lambda all, rank: all[rank], lambda all, rank: all[rank] * len(all)]),
        "another-order": each(order=[lambda sums: sums[1:] + sums[:1], lambda sums: sums[::-1]]),
    },
    diagnoses={"other-kinds": other_kinds, "kept": over_budget("memory")},
)

# ---- 13.4 clip_global_norm -----------------------------------------------------------------------

# The norm that a rank takes, of squares: by rank those of its pieces, and those that all have.
Norm = Callable[[list[list[float]], list[float], int], float]


def own(pieces: list[list[float]], whole: list[float], rank: int) -> float:
    """The norm of what a rank holds."""
    return sqrt(sum(pieces[rank]) + sum(whole))


def clip(
    given: list[tuple[Clipping]],
    norm: Norm = lambda pieces, whole, rank: sqrt(sum(map(sum, pieces)) + sum(whole)),
    clips_by: Norm | None = None,
    decides_by: Norm | None = None,
    scaled: Callable = lambda grad, by, cut, most: grad * min(by, 1),
    stays: Callable[[float], bool] = lambda by: True,
) -> list[Tensor]:
    """The norm of the whole gradient, and all are scaled by one factor. The rest are mistakes."""
    jobs, out = [job for (job,) in given], []
    there = [[(g, cut) for g, cut in job.grads if g is not None] for job in jobs]
    squares = [[(float(g.double().square().sum()), cut) for g, cut in own] for own in there]
    pieces = [[value for value, cut in own if cut] for own in squares]
    whole = [value for value, cut in squares[0] if not cut]
    dtype = next((g.dtype for own in there for g, _ in own), torch.float32)
    for rank, job in enumerate(jobs):
        by = job.max_norm / ((clips_by or norm)(pieces, whole, rank) + 1e-6)
        if decides_by and decides_by(pieces, whole, rank) <= job.max_norm:
            by = 1.0
        grads = [
            g if g is None else scaled(g.double(), by, cut, job.max_norm).to(g.dtype)
            for g, cut in job.grads
        ]
        job.notes(grads, [g is None or stays(by) for g in grads])
        out.append(torch.tensor(norm(pieces, whole, rank), dtype=dtype))
    return out


def some_gradients(case: Case, rank: int) -> tuple[Clipping]:
    """First a rank's pieces, then those that are on all ranks."""
    o, none = case.options, case.options.get("gradient")
    grads: list[tuple[Tensor | None, bool]] = []
    for k, length in enumerate((*o["pieces"], *o["whole"])):
        cut = k < len(o["pieces"])
        numbers = replace(case, length=length, numbers="random", seed=k)
        is_missing = (none == NONE_ANYWHERE and k == 0) or (none == NONE_SOMEWHERE and not rank)
        grad = tensor(numbers, rank if cut else 0) * o.get("times", 1)
        grads.append((None if is_missing and cut else grad, cut))
    return (Clipping(grads, o["max_norm"], "params" in o),)


def other_dtype(play: Play) -> bool:
    """The norm is right, but for its dtype."""
    pairs = [(f.got, f.want) for f in play.findings if isinstance(f.got, Tensor)]
    return only("returned")(play) and all(same(a.to(b.dtype), b, 1e-5) for a, b in pairs)


def one_number(play: Play) -> Iterator[Finding]:
    for rank in play.ranks:
        calls = [(e.op, e.nbytes) for e in play.trace.of(rank)]
        if [op for op, _ in calls] != ["all_reduce"] or calls[0][1] > 8:
            said = ", ".join(f"{op} of {nbytes} bytes" for op, nbytes in calls) or "nothing"
            yield Finding("calls", f"rank {rank} calls {said}", rank)


with_gradients = partial(rows, "pieces whole max_norm")

exercise(
    "13.4 clip_global_norm",
    clip,
    inputs=some_gradients,
    tolerance=1e-5,
    blank=False,
    words={
        NONE_ANYWHERE: "a gradient is None on all ranks. It adds nothing, and stays None.",
        NONE_SOMEWHERE: "all pieces of a rank have None. That rank makes the same calls.",
    },
    core=lambda rng: [
        *with_gradients((2, 0, (2,), (), 1.0), (2, 0, (2,), (3,), 1.0), (3, 0, (2, 3), (4,), 2.0)),
        *with_gradients((3, 0, (3,), (2, 2), 1e4), (4, 0, (5, 1), (3, 6), 7.5)),
        *with_gradients((3, 0, (3,), (2,), 14.0)),
        *with_gradients((2, 0, (2,), (3,), 1.0), options=GENERATOR),
        *with_gradients((2, 0, (3, 2), (2,), 1.0), options={"gradient": NONE_ANYWHERE}),
        *with_gradients((3, 0, (3, 2), (2,), 1.0), options={"gradient": NONE_SOMEWHERE}),
        *with_gradients((2, 0, (3,), (), 1.0), options={"gradient": NONE_SOMEWHERE}),
        *with_gradients((5, 0, (rng.randrange(4, 9), 3), (rng.randrange(4, 9),), 0.5)),
    ],
    sturdy=lambda rng: [
        *with_gradients((1, 0, (2, 3), (4,), 1.0), (crowd(rng), 0, (3,), (2,), 1.0)),
        *with_gradients((2, 0, (4, 3), (5,), 64.0), dtype="float16", options={"times": 300}),
        *with_gradients((2, 0, (4, 3), (5,), 64.0), dtype="float64", options={"times": 2**20}),
        *with_gradients((2, 0, (), (3,), 1.0)),
        *with_gradients((2, 0, (3,), (), 1.0), options={"times": 0}),
        *with_gradients((2, 0, (3,), (), 1.0), options={"gradient": NONE_ANYWHERE}),
    ],
    budget=[one_number],
    hints={
        "generator": "params is a generator here. It can be gone through once.",
        "own-norm": "A rank takes the norm of what it holds itself: to return it, to scale by it, "
        "or to decide whether to scale. The others' pieces belong to the same gradient.",
        "counted-n-times": "What all ranks have is added once by each rank. It should count once.",
        "whole-left-out": "Only pieces are counted. The others belong to the gradient, too.",
        "root-first": "Norms are added, or the largest is taken. The norm of two parts is the root "
        "of the sum of their squares: the root comes last.",
        "averaged": "The mean over the ranks is taken where a sum is asked for.",
        "not-scaled": "The norm is right, and gradients stay as they were: it exceeds max_norm.",
        "other-dtype": "The norm is right, and its dtype is not that of the gradients.",
        "turned-round": "Gradients are scaled up where the norm is small, and otherwise stay.",
        "scales-a-part": "Only the pieces are scaled, or only the others. One factor scales all.",
        "each-element": "Each element is clipped by itself, and not the whole gradient scaled.",
        "scales-up": "Where the norm is below max_norm, the gradient stays as it is.",
        "replaced": "`.grad` is another tensor now. Scale the one that is there, in place.",
        "none": "A `.grad` may be None. It adds nothing, and there is nothing to scale.",
        "overflows": "The square of 300 is more than float16 holds: add up in a wider dtype.",
        "calls": "One number tells the others all that they need. Which call adds it up?",
    },
    mistakes={
        "own-norm": [
            *[{of: own} for of in ("norm", "clips_by", "decides_by")],
            {"norm": lambda p, w, r: own(p, [] if r else w, r)},
        ],
        "counted-n-times": {"norm": lambda p, w, r: sqrt(sum(map(sum, p)) + len(p) * sum(w))},
        "whole-left-out": {"norm": lambda p, w, r: sqrt(sum(map(sum, p)))},
        "root-first": [
            {"norm": lambda p, w, r: sum(sqrt(sum(own) + sum(w)) for own in p)},
            {"norm": lambda p, w, r: max(own(p, w, rank) for rank in range(len(p)))},
            {"norm": lambda p, w, r: sum(map(sqrt, [*chain(*p), *w]))},
        ],
        "averaged": {"norm": lambda p, w, r: sqrt(sum(map(sum, p)) / len(p) + sum(w))},
        "not-scaled": {"scaled": lambda g, by, cut, most: g},
        "scales-up": {"scaled": lambda g, by, cut, most: g * by},
        "turned-round": {"scaled": lambda g, by, cut, most: g * max(by, 1)},
        "scales-a-part": [
            {"scaled": lambda g, by, cut, most: g * min(by, 1) if cut else g},
            {"scaled": lambda g, by, cut, most: g if cut else g * min(by, 1)},
        ],
        "each-element": {"scaled": lambda g, by, cut, most: g.clamp(-most, most)},
        "replaced": [{"stays": lambda by: False}, {"stays": lambda by: by >= 1}],
    },
    diagnoses={
        "generator": lambda play: "params" in play.case.options,
        "none": lambda play: found("AttributeError", "TypeError")(play) or says("NoneType")(play),
        "overflows": lambda play: play.done and play.got(0).returned == inf,
        "other-dtype": other_dtype,
    },
)


# ---- 13.5 bytes_per_rank -------------------------------------------------------------------------


def of_each_kind(
    params: int,
    n: int,
    stage: int,
    sizes: tuple[int, int, int] = (2, 2, 12),
    since: tuple[int, int, int] = (3, 2, 1),
    divides: Callable[[int, int], bool] = ge,
    share: Callable[[int, int, int], float] = lambda params, n, size: -(-params // n) * size,
) -> dict[str, float]:
    """Bytes of mixed precision with Adam. The rest are mistakes."""
    return {
        name: share(params, n, size) if divides(stage, first) else params * size
        for name, first, size in zip(("weights", "gradients", "states"), since, sizes, strict=True)
    }


def of_stages(*cases: tuple[int, int]) -> list[Case]:
    by_stage = [(1, 0, *case, stage) for case in cases for stage in range(4)]
    return rows("params n stage", *by_stage)


exercise(
    "13.5 bytes_per_rank",
    lambda given, **knobs: [of_each_kind(*args, **knobs) for args in given],
    inputs=lambda case, rank: tuple(case.options.values()),
    in_ranks=False,
    rules=[rules.without_a_word],
    core=lambda rng: of_stages(
        (12, 4),
        (9, 4),
        (rng.randrange(10**6, 10**7) * 64, 64),
        (10**9 + rng.randrange(1, 30), 32),
    ),
    sturdy=lambda rng: of_stages((5, 1), (3, 8), (0, 4)),
    hints={
        "another-size": "A weight or a gradient has 2 bytes here, and Adam keeps 12 for each "
        "parameter: two averages and a copy of the weight, of 4 bytes each.",
        "all-float32": "All of it is counted in float32. In mixed precision a weight and a "
        "gradient have 2 bytes, and the states have 12, with a float32 copy of the weight.",
        "master-under-weights": "The float32 copy of a weight counts under weights here. It "
        "belongs to the states, which stage 1 divides.",
        "no-master": "Adam's two averages are there. In mixed precision a copy of the weight in "
        "float32 belongs to the states, too: 12 bytes.",
        "one-kind-alone": "A stage divides what those before it divide, and one kind more.",
        "not-rounded": "A share is a whole number of parameters, rounded up to an int.",
        "too-early": "Something is divided a stage too early. Stage 1 divides the states alone, "
        "stage 2 gradients as well, stage 3 everything.",
        "too-late": "Something that this stage divides is still whole.",
        "swapped": "The order is another one: states first, then gradients, then weights.",
        "rounded-down": "The last parameters are nobody's: a share is rounded up.",
        "rounded-too-far": "Where n divides the number of parameters, one too many is counted.",
    },
    mistakes={
        "another-size": each(sizes=[(4, 2, 12), (2, 4, 12), (4, 4, 12)]),
        "no-master": {"sizes": (2, 2, 8)},
        "all-float32": {"sizes": (4, 4, 8)},
        "master-under-weights": {"sizes": (6, 2, 8)},
        "one-kind-alone": {"divides": eq},
        "not-rounded": {"share": lambda params, n, size: params / n * size},
        "swapped": each(since=[(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2), (2, 1, 3)]),
        "too-early": each(since=[(2, 2, 1), (1, 2, 1), (1, 1, 1), (3, 1, 1), (2, 1, 0), (3, 2, 0)]),
        "too-late": each(since=[(3, 3, 1), (3, 2, 2), (3, 3, 2), (4, 3, 2), (4, 2, 1), (4, 4, 1)]),
        "rounded-down": {"share": lambda params, n, size: params // n * size},
        "rounded-too-far": {"share": lambda params, n, size: (params // n + 1) * size},
    },
)
