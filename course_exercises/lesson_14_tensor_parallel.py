"""Lesson 14: a layer cut through the middle, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_check.cases import Case, drawn
from course_check.cases import rows as cases
from course_check.compare import COUNTED
from course_check.exercise import Play
from course_check.rules import bytes_at_most, peaks_at, sends_at_most
from course_exercises.both_ways import DRIVEN, backward, calls_at_most, driven
from course_exercises.declare import Knobs, each, exercise, marked, over_budget
from course_exercises.drivers.driven import AT_PEAK, BothWays

UNEVEN = "parts of unequal size"

# ---- 14.1 parallel_mlp ---------------------------------------------------------------------------

CUT = {"w1": 0, "b1": 0, "w2": 1}  # along which dimension the ranks' parts lie side by side
share_of_x = backward(CUT, "sum-missing", "x")
of_w1, of_w2 = (backward(CUT, "equal", name) for name in ("w1", "w2"))


def mlp(
    given: list[tuple[BothWays]],
    alone: bool = False,
    power: int = 0,
    divisor: Callable[[int], int] = lambda n: 1,
    hidden: Callable[..., Tensor] = lambda x, w1, b1: F.gelu(F.linear(x, w1, b1)),
    last: Callable[[Tensor], Tensor] = lambda y: y,
) -> None:
    """One process that has all hidden units. The rest are mistakes in forward."""
    jobs = [job for (job,) in given]
    own = [{name: t.double().requires_grad_() for name, t in job.given.items()} for job in jobs]
    x, b2 = own[0]["x"], own[0]["b2"]
    shares = [F.linear(hidden(x, t["w1"], t["b1"]), t["w2"]) for t in own]
    whole = torch.stack(shares).sum(0)
    (last(whole + b2) * jobs[0].upstream).sum().backward()
    for rank, job in enumerate(jobs):
        y = shares[rank] if alone else whole / divisor(len(jobs))
        output = last(y + len(jobs) ** power * b2)
        job.noted["output"] = output.detach().to(job.upstream.dtype)
        for name in (*CUT, "x", "b2"):
            grad: Any = own[rank if name in CUT else 0][name].grad
            job.noted[f"{name}.grad"] = grad.to(job.upstream.dtype)


def layers(case: Case, rank: int) -> tuple[BothWays]:
    units, width = case.options["units"][rank], case.length
    x = (case.options.get("rows", 2), width)
    shapes = {"x": x, "w1": (units, width), "b1": (units,), "w2": (width, units), "b2": (width,)}
    given = {
        name: drawn(case, f"{name} {rank if name in CUT else ''}", *shape)
        for name, shape in shapes.items()
    }
    if case.layout == "transposed":  # and so is its gradient
        given["x"] = given["x"].t().contiguous().t()
    return (BothWays(given, (), drawn(case, "dy", *x)),)


exercise(
    "14.1 parallel_mlp",
    mlp,
    inputs=layers,
    tolerance=1e-5,
    length_is="width",
    words={UNEVEN: "ranks have different numbers of hidden units. Each has what it is given."},
    special=lambda case: marked({UNEVEN: len({*case.options["units"]}) > 1}),
    core=lambda rng: [
        *cases("units", (2, 2, (2, 2)), (3, 3, (2, 2, 2)), (4, 2, (1,) * 4), (2, 3, (2, 4))),
        *cases("units rows", (2, 4, (3, 3), 1), (3, 5, (4, 1, 3), 4)),
        *cases("units", (4, rng.randrange(3, 7), tuple(rng.randrange(2, 6) for _ in range(4)))),
    ],
    sturdy=lambda rng: [
        *cases("units", (1, 3, (4,)), (2, 2, (3, 0)), (16, 1, (2,) * 16), (5, 3, (1, 2, 3, 4, 5))),
        *cases("units", (3, 4, (3, 2, 5)), dtype="float64"),
        *cases("units rows", (2, 3, (2, 2), 0)),
        *cases("units", (2, 3, (2, 3)), layout="transposed"),
    ],
    budget=[calls_at_most(lambda play, out: (out.numel(),) * 2, calls=1)],
    hints={
        "bias-divided": "In backward b2's gradient is n times too small: it is that of b2/n.",
        **DRIVEN,
        "copy-summed": "x lies in memory by columns, and the sum went into contiguous()'s copy.",
        "share-of-x": "In backward each rank has its share of x's gradient. Nobody adds them up.",
        "bias-n-times": "b2 counts n times: it is added on each rank, before the sum.",
        "own-share": "The output is the sum of all ranks' shares; each rank returns its own.",
        "mean": "The ranks' shares are averaged. Each has other hidden units: they are added up.",
        "other-gelu": "gelu is meant as F.gelu computes it when it is told nothing.",
        "gelu-elsewhere": "gelu belongs between the two layers, on x·w1ᵀ + b1, and nowhere else.",
        "b1-elsewhere": "b1 is missing, or comes after gelu. gelu is of x·w1ᵀ + b1.",
        "f-too-late": "In backward w2's gradient is right, and w1's is not. What is summed there?",
        "too-many-calls": "One all_reduce of B·D numbers is enough forward, and one backward.",
    },
    mistakes={
        "bias-n-times": {"power": 1},
        "own-share": each(alone=[True], power=(0, -1)),
        "mean": {"divisor": lambda n: n},
        "other-gelu": {"hidden": lambda x, w1, b1: F.gelu(F.linear(x, w1, b1), approximate="tanh")},
        "gelu-elsewhere": each(hidden=[F.linear], last=(F.gelu, lambda y: y)),
        "b1-elsewhere": [
            {"hidden": lambda x, w1, b1: F.gelu(F.linear(x, w1, 0 * b1))},
            {"hidden": lambda x, w1, b1: F.gelu(F.linear(x, w1)) + b1},
        ],
    },
    diagnoses={
        "bias-divided": backward(CUT, "1/n", "b2"),
        **driven(**CUT),
        "copy-summed": lambda play: play.case.layout == "transposed" and share_of_x(play),
        "f-too-late": lambda play: of_w2(play) and not of_w1(play),
        "share-of-x": share_of_x,
        "too-many-calls": over_budget("calls"),
    },
)

# ---- 14.2 vocab_parallel_cross_entropy -----------------------------------------------------------

LARGE, NOTHING = "in the hundreds", "no columns"
STRAY = ("to the nearest", "to the first", "from the next", "first lost", "last lost")


def is_target(job: BothWays, strays: str) -> Tensor:
    """A one in the target's column, or in that of ``strays`` where another rank has it."""
    (first, targets), v = job.rest, job.given["logits"].shape[1]
    near = targets.clamp(first, first + v - 1)
    tos = (
        near,
        torch.where(near == targets, targets, first),
        targets - (targets == first + v).long(),
        torch.where(targets == first, -1, targets),
        torch.where(targets == first + v - 1, -1, targets),
    )
    targets = dict(zip(STRAY, tos, strict=True)).get(strays, targets)
    return (torch.arange(first, first + v) == targets[:, None]).double()


def of_ties(logits: Tensor) -> Tensor:
    """Among whom amax() shares a gradient."""
    top = (logits == logits.amax(1, keepdim=True)).double()
    return top / top.sum(1, keepdim=True)


def cross_entropy(
    given: list[tuple[BothWays]],
    total: Callable[[Tensor, int], Tensor] = lambda sums, rank: sums.sum(0),
    own_top: bool = False,
    strays: str = "",
    tops: Callable[[int], int] = lambda n: 1,
    strays_back: str = "",
    all_rows: bool = False,
    own_sum_back: bool = False,
    through_top: Callable[[Tensor], Tensor] = torch.zeros_like,
    chain: bool = True,
    result: Callable[[Tensor], Tensor] = lambda losses: losses,
) -> None:
    """One process that has all columns. The rest are mistakes, in forward and in backward."""
    jobs = [job for (job,) in given]
    parts = [job.given["logits"].double() for job in jobs]
    whole = torch.cat(parts, 1)
    shifted = [p - (p if own_top else whole).amax(1, keepdim=True) for p in parts]
    sums = [p.exp().sum(1) for p in shifted]
    found = [(p * is_target(job, strays)).sum(1) for p, job in zip(shifted, jobs, strict=True)]
    found[0] -= (tops(len(jobs)) - 1) * whole.amax(1)
    shares = whole.softmax(1).split([p.shape[1] for p in parts], 1)
    for rank, job in enumerate(jobs):
        losses = total(torch.stack(sums), rank).log() - torch.stack(found).sum(0)
        share = parts[rank].softmax(1) if own_sum_back else shares[rank]
        ones = is_target(job, strays_back)
        grad = share - (ones.sum(0).clamp(0, 1) if all_rows else ones)
        grad -= grad.sum(1, keepdim=True) * through_top(parts[rank])
        job.noted["output"] = result(losses).to(job.upstream.dtype)
        grad = grad * job.upstream[:, None] if chain else grad
        job.noted["logits.grad"] = grad.to(job.upstream.dtype)


def columns(case: Case, rank: int) -> tuple[BothWays]:
    by_rank, rows = case.options["columns"], case.length
    first, whole = sum(by_rank[:rank]), sum(by_rank)
    logits = drawn(case, "logits", rows, whole) * (300 if case.options.get("logits") else 1)
    targets = torch.arange(rows) * (whole // 2 + 1) % whole
    part = logits[:, first : first + by_rank[rank]]
    return (BothWays({"logits": part}, (first, targets), drawn(case, "dy", rows)),)


exercise(
    "14.2 vocab_parallel_cross_entropy",
    cross_entropy,
    inputs=columns,
    tolerance=1e-4,  # what a difference of two numbers in the hundreds has left of float32
    length_is="rows",
    words={
        UNEVEN: "ranks have different numbers of columns. `first` says where a rank's begin.",
        NOTHING: "a rank has no columns. It takes part in each call, and has no maximum.",
        LARGE: "logits are in the hundreds. e to the power of 89 is too large for float32.",
    },
    special=lambda case: marked(
        {UNEVEN: len({*case.options["columns"]}) > 1, NOTHING: 0 in case.options["columns"]}
    ),
    core=lambda rng: [
        *cases("columns", (2, 2, (2, 2)), (2, 4, (3, 3)), (3, 3, (2,) * 3), (4, 5, (2,) * 4)),
        *cases("columns logits", (2, 3, (3, 3), LARGE)),
        *cases("columns", (3, 6, (4, 2, 3)), (4, rng.randrange(4, 9), (3, 5, 2, 2))),
    ],
    sturdy=lambda rng: [
        *cases("columns", (1, 3, (5,)), (3, 4, (3, 0, 2)), (16, 5, (2,) * 16), (2, 0, (2, 2))),
        *cases("columns", (3, 4, (2, 5, 1)), dtype="float64"),
        *cases("columns logits", (3, 4, (1, 6, 2), LARGE)),
    ],
    budget=[calls_at_most(lambda play, out: (3 * out.numel(), 0), calls=3, size="bytes_in")],
    hints=DRIVEN
    | {
        "one-everywhere": "In backward ranks without the target's column subtract 1 in another.",
        "through-the-maximum": "A gradient goes through the maximum, which counts as a constant.",
        "upstream-left-out": "In backward the gradient that comes in for each row is left out.",
        "own-maximum": "Exponentials can be added up only if all have subtracted the same maximum.",
        "own-sum": "The sum of the exponentials is over all columns, not a rank's own.",
        "own-sum-back": "In backward a rank divides by its own sum, not by that over all columns.",
        "log-too-soon": "Add up the ranks' sums first, and take one logarithm: no product or mean.",
        "not-shifted": "The maximum is subtracted in the sum, and not from the target's logit.",
        "edge-lost": "A rank's columns are first to first + v − 1, both of them included.",
        "all-rows": "In backward 1 is subtracted in every row: d[:, columns] means all of them.",
        "one-number": "A loss for each row is asked for: B numbers, and no mean or sum of them.",
        "others-targets": "A rank that does not have the target's column has to add 0 for it.",
        "too-many-bytes": "Three numbers a row go into collectives, and none in backward.",
    },
    mistakes={
        "one-number": each(result=(Tensor.mean, Tensor.sum, lambda t: t.mean().expand_as(t))),
        "one-everywhere": each(strays_back=STRAY[:3]),
        "all-rows": each(strays_back=("", *STRAY[:2]), all_rows=[True]),
        "own-sum-back": {"own_sum_back": True},
        "edge-lost": each(strays=("", *STRAY[3:]), strays_back=STRAY[3:]) + each(strays=STRAY[3:]),
        "through-the-maximum": each(
            through_top=(lambda own: F.one_hot(own.argmax(1), own.shape[1]), of_ties)
        ),
        "log-too-soon": each(total=(lambda s, rank: s.prod(0), lambda s, rank: s.mean(0))),
        "not-shifted": {"tops": lambda n: 0},
        "own-maximum": {"own_top": True},
        "upstream-left-out": {"chain": False},
        "own-sum": each(total=[lambda sums, rank: sums[rank]], own_top=(False, True)),
        "others-targets": [
            *each(strays=STRAY[:3], strays_back=("", *STRAY[:3])),
            {"tops": lambda n: n},
        ],
    },
    diagnoses={**driven(logits=1), "too-many-bytes": over_budget("calls")},
)

# ---- 14.3 ring_attention -------------------------------------------------------------------------

LAYOUTS = {
    "in blocks": lambda place, n, length: place * n // length,
    "zigzag": lambda place, n, length: min(p := place * 2 * n // length, 2 * n - 1 - p),
    "dealt out": lambda place, n, length: place % n,
    "uneven": lambda place, n, length: min(place // 2, n - 1) if place % 5 else n - 1,
}
NAMES = "rows places"  # of options
OUT_OF_ORDER = "the places of a rank's rows are not side by side. Places say who sees whom."
# Of each rank the scores of own rows with its rows, its v, and the scores before they are masked.
Blocks = list[tuple[Tensor, Tensor, Tensor]]


def by_place(keys: Tensor, queries: Tensor, other: int, rank: int) -> Tensor:
    return keys <= queries[:, None]


def by_rank(keys: Tensor, queries: Tensor, other: int, rank: int) -> Tensor:
    return torch.ones(len(queries), len(keys)).tril(10**6 * (rank - other)) > 0


def whole_blocks(keys: Tensor, queries: Tensor, other: int, rank: int) -> Tensor:
    return torch.full((len(queries), len(keys)), other <= rank)


def softmax(blocks: Blocks) -> Tensor:
    return torch.cat([s for s, *_ in blocks], 1).softmax(1) @ torch.cat([v for _, v, _ in blocks])


# A row that sees nothing of a block is NaN there, or left out, or zero.
MEANS = (Tensor.mean, Tensor.nanmean, lambda by_block, dim: by_block.nan_to_num(0).mean(dim))


def mean_of_blocks(blocks: Blocks, mean: Callable[[Tensor, int], Tensor]) -> Tensor:
    return mean(torch.stack([s.softmax(1) @ v for s, v, _ in blocks]), 0)


def step_by_step(blocks: Blocks, but: str) -> Tensor:
    """As the ring computes it, in float32, but with a mistake: in what shrinks when the maximum
    grows, in what the maximum is of, in when the result is divided."""
    top = torch.full((len(blocks[0][0]), 1), -torch.inf)
    sums = values = torch.zeros_like(top).double()
    for scores, v, unmasked in blocks:
        seen = unmasked if but == "the maximum is unmasked" else scores
        new = torch.maximum(top, seen.amax(1, keepdim=True))
        powers, shrink = ((t - new).float().exp().double() for t in (scores, top))
        sums = sums * (1 if "sums" in but else shrink) + powers.sum(1, keepdim=True)
        values = values * (1 if "values" in but else shrink) + powers @ v
        values, top = values / sums if but == "divided at once" else values, new
    return values if but == "divided at once" else values / sums


def stepping(*buts: str) -> list[Knobs]:
    return each(blend=[partial(step_by_step, but=but) for but in buts], turns=TURNS)


def nan_of_nothing(blocks: Blocks, which: slice = slice(None)) -> Tensor:
    """Of these blocks, in the order in which a rank computes with them."""
    blind = torch.stack([s.isneginf().all(1) for s, *_ in blocks[which] or blocks]).any(0)
    return softmax(blocks).masked_fill(blind[:, None], torch.nan)


TURNS = (range, lambda n: [0, *range(n - 1, 0, -1)])  # blocks come from the left, or the right


def attention(
    given: list[tuple[BothWays]],
    sees: Callable[[Tensor, Tensor, int, int], Tensor] = by_place,
    scale: Callable[[Tensor], float] = lambda q: q.shape[1] ** 0.5,
    stays: str = "",
    blend: Callable[[Blocks], Tensor] = softmax,
    turns: Callable[[int], Iterable[int]] = range,
) -> None:
    """All rows in one process. The rest are mistakes. A rank has its own block first, and then in
    ``turns`` those of the ranks below it."""
    jobs = [job for (job,) in given]
    n = len(jobs)
    for rank, job in enumerate(jobs):
        q, where = job.given["q"].double(), job.rest[0]
        blocks = []
        for other in ((rank - step) % n for step in turns(n)):
            k, v = (jobs[rank if name in stays else other].given[name].double() for name in "kv")
            hidden = ~sees(jobs[other].rest[0], where, other, rank)
            scores = q @ k.t() / scale(q)
            blocks.append((scores.masked_fill(hidden, -torch.inf), v, scores))
        job.noted["output"] = blend(blocks).to(job.given["q"].dtype)
        job.noted |= dict.fromkeys(("q.grad", "k.grad", "v.grad"))
        if job.counted:
            job.noted |= COUNTED


def rows(case: Case, rank: int) -> tuple[BothWays]:
    o, n = case.options, case.world
    owner = [LAYOUTS[o["places"]](place, n, o["rows"]) for place in range(o["rows"])]
    where = torch.tensor([place for place, mine in enumerate(owner) if mine == rank])
    given = {name: drawn(case, name, o["rows"], case.length)[where] for name in "qkv"}
    if o.get("scores") == "large":
        given["q"] *= 400
    if o.get("scores") == "far below zero":
        given |= {"q": given["q"].abs() * 40_000, "k": -given["k"].abs() - 1}
    counted = AT_PEAK if o.get("counted") else ""
    return (BothWays(given, (where,), torch.empty(0), "qkv", counted),)


def blocks_of(play: Play) -> list[int]:
    """By rank the bytes of k, v and where."""
    jobs = [play.given(rank) for rank in play.ranks]
    return [job.given["k"].nbytes + job.given["v"].nbytes + job.rest[0].nbytes for job in jobs]


def three_blocks(play: Play, rank: int) -> int | None:
    """What is given, a copy of it, two blocks of others, and what is computed with one."""
    job = play.given(rank)
    work = 32 * len(job.rest[0]) * (play.case.length + len(job.rest[0]))
    return 5 * max(blocks_of(play)) + work if job.counted else None


exercise(
    "14.3 ring_attention",
    attention,
    inputs=rows,
    tolerance=1e-5,
    length_is="d",
    words={
        "in blocks": None,
        "zigzag": OUT_OF_ORDER,
        "dealt out": OUT_OF_ORDER,
        "uneven": "ranks have different numbers of rows. How long is the block that comes?",
        "large": "scores are in the thousands. What is subtracted before exp?",
        "far below zero": "all scores are far below zero. What is smaller than any of them?",
        "long": "there are more than 2,048 places. In which dtype do they travel?",
    },
    core=lambda rng: [
        *cases(NAMES, (2, 1, 2, "in blocks"), (2, 2, 4, "in blocks"), (3, 2, 6, "in blocks")),
        *cases(NAMES, (2, 2, 4, "zigzag"), (3, 4, 9, "dealt out"), (4, 3, 16, "zigzag")),
        *cases(NAMES, (5, rng.randrange(2, 6), 5 * rng.randrange(2, 5), "dealt out")),
    ],
    sturdy=lambda rng: [
        *cases(NAMES, (1, 2, 3, "in blocks"), (12, 2, 36, "dealt out")),
        *cases(NAMES, (3, 2, 11, "uneven"), (4, 3, 17, "uneven")),
        *cases(NAMES, (3, 3, 12, "zigzag"), dtype="float64"),
        *cases(f"{NAMES} scores", (2, 4, 6, "in blocks", "large"), (3, 4, 12, "zigzag", "large")),
        *cases(f"{NAMES} scores", (3, 4, 9, "in blocks", "far below zero")),
        *cases(NAMES, (2, 1, 2070, "in blocks")),
    ],
    special=lambda case: marked({"long": case.options["rows"] > 2048}),
    regimes=lambda rng: cases(f"{NAMES} counted", (16, 32, 64, "in blocks", True)),
    budget=[
        calls_at_most(lambda play, out: (2 * play.case.world, 0), calls=2),  # lengths, of 8 bytes
        sends_at_most(lambda play: 3 * (play.case.world - 1)),
        bytes_at_most(lambda play: (play.case.world - 1) * max(blocks_of(play))),
        peaks_at(three_blocks),
    ],
    hints={
        "mean-of-blocks": "Results of blocks are averaged. Larger scores count for more.",
        "not-rescaled": "When a block has a larger maximum, what has been added up until then is "
        "too large for it: the sum, and the sum of values, have to shrink by the same factor.",
        "nan-of-nothing": "A row that sees nothing of some block becomes NaN: 0/0, and 0 · NaN.",
        "by-rank": "Ranks decide here who sees whom. Places say what comes before a row.",
        "own-places": "A block is masked with a rank's own places. They travel with their rows.",
        "not-causal": "Rows see places that come after their own.",
        "not-itself": "A row sees itself as well: its own place is not after its own.",
        "turned-round": "Rows see what comes after them, and not what comes before.",
        "stays": "Keys, or values, stay where they are, while the rest of their block travels.",
        "hidden-maximum": "The maximum is over scores that are masked afterwards. It may be so "
        "large that exp leaves nothing of those that count: 0/0.",
        "divided-each-step": "The sum grows until the last step: divide by it once, at the end.",
        "scale": "Scores are divided by √d, the root of the number of columns.",
        "block-missing": "A block is left out: a rank's own comes first, and n − 1 come round.",
        "gathers": "Rows go through a collective. Which neighbour could hand its block on?",
        "comes-home": "n − 1 blocks go to one neighbour. What goes beyond them: does a last "
        "message bring a block home, or is a block longer than its keys, values and places?",
        "blocks-kept": "Too many blocks are alive at once. One is computed with while the next "
        "comes. Which list, or which copy, keeps the others?",
    },
    mistakes={
        "mean-of-blocks": each(blend=[partial(mean_of_blocks, mean=mean) for mean in MEANS]),
        "hidden-maximum": stepping("the maximum is unmasked"),
        "not-rescaled": stepping("sums stay", "values stay", "sums and values stay"),
        "divided-each-step": stepping("divided at once"),
        "nan-of-nothing": each(
            blend=(nan_of_nothing, partial(nan_of_nothing, which=slice(1, 2))), turns=TURNS
        ),
        "by-rank": each(sees=(by_rank, whole_blocks)),
        "own-places": {"sees": lambda keys, rows, *of: by_place(rows, rows, *of)},
        "not-causal": {"sees": lambda keys, rows, *of: by_place(keys, rows + 10**6, *of)},
        "not-itself": each(
            sees=[lambda keys, rows, *of: by_place(keys, rows - 1, *of)],
            blend=(softmax, nan_of_nothing, partial(nan_of_nothing, which=slice(1))),
        ),
        "turned-round": [
            {"sees": lambda keys, rows, *of: by_place(-keys, -rows, *of)},
            {"sees": lambda keys, rows, *of: ~by_place(keys, rows, *of)},
        ],
        "stays": each(stays=("k", "v", "kv")),
        "scale": each(scale=(lambda q: q.shape[1], lambda q: 1, lambda q: len(q) ** 0.5)),
        "block-missing": each(turns=(lambda n: range(n - 1), lambda n: [0, *range(2, n)])),
    },
    diagnoses={
        "gathers": over_budget("calls"),
        "comes-home": over_budget("sends", "bytes"),
        "blocks-kept": over_budget("memory"),
    },
)
