"""Lesson 14: a layer cut through the middle, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_exercises.declare import each, exercise, marked, over_budget
from course_lib.beside.driven import AT_PEAK, BothWays
from course_lib.checks.cases import Case, drawn
from course_lib.checks.cases import rows as cases
from course_lib.checks.compare import COUNTED
from course_lib.checks.exercise import Finding, Play, Rule
from course_lib.checks.rules import bytes_at_most, passes, peaks_at, sends_at_most
from course_lib.checks.usual_diagnoses import OfPlay, says
from course_lib.gradient_comparison import compare_gradients

UNEVEN = "parts of unequal size"


def calls_at_most(numbers: Callable[[Play, Tensor], tuple[int, int]], calls: int) -> Rule:
    """At most so many collectives a pass, and so many numbers in them forward and backward."""

    def rule(play: Play) -> Iterator[Finding]:
        for rank, when, events in passes(play):
            out = play.given(rank).upstream
            most = numbers(play, out)[when == "backward"] * out.itemsize
            made = [e for e in events if e.is_collective]
            if sum(e.nbytes for e in made) > most or len(made) > calls:
                said = ", ".join(f"{e.op} of {e.nbytes} bytes" for e in made)
                yield Finding("calls", f"rank {rank}, {when}: {said}; at most {most} bytes", rank)

    return rule


def backward(cut: Mapping[str, int], kind: str, *names: str) -> OfPlay:
    """Forward is right, and ``compare_gradients`` says this kind of one of these gradients, or of
    any; the factors ``n`` and ``1/n`` count as kinds. ``cut``: along which dimension a tensor's
    parts lie side by side on the ranks; others are whole on each."""

    def when(play: Play) -> bool:
        if not play.done or play.wrong != ["grad"]:
            return False
        wants, gots = ([one.args[0] for one in seen[0]] for seen in (play.expected, play.seen))
        asked = [f"{name}.grad" for name in names] or [n for n in wants[0] if n.endswith(".grad")]
        whole = {}
        for name in asked:
            parts, dim = [want[name] for want in wants], cut.get(name.removesuffix(".grad"))
            whole[name] = parts[0] if dim is None else torch.cat(parts, dim)
        found = compare_gradients(whole, [{name: got[name] for name in asked} for got in gots])
        factor = f"{kind.replace('n', str(play.case.world))} times"
        return any(f.kind == kind or f.text.startswith(factor) for f in found)

    return when


DRIVEN = {
    "changes-argument": "A caller's tensor stays as it was: nobody writes into it, and no hook is "
    "left on it. Work on a copy, and hang a hook on a view.",
    "no-gradient": "Forward is right. In backward some tensor gets no gradient: a detach, no_grad "
    "or a tensor without history stands in the way, or this rank has left the tensor out.",
    "summed-again": "Forward is right. In backward a gradient is n times too large. The loss is "
    "the same on all ranks, and counts once: what is added up that every rank has whole already?",
    "divided": "Forward is right. In backward a gradient is n times too small.",
}


def driven(**cut: int) -> dict[str, OfPlay]:
    """When these hints are true."""
    whens = (says("the caller's"), *(backward(cut, kind) for kind in ("none", "n", "1/n")))
    return dict(zip(DRIVEN, whens, strict=True))


# ---- 14.1 parallel_mlp ---------------------------------------------------------------------------

CUT = {"w1": 0, "b1": 0, "w2": 1}  # along which dimension the ranks' parts lie side by side
share_of_x = backward(CUT, "sum-missing", "x")


def mlp(
    given: list[tuple[BothWays]],
    alone: bool = False,
    power: int = 0,
    gelu: Callable[[Tensor], Tensor] = F.gelu,
) -> None:
    """One process that has all hidden units. The rest are mistakes in forward."""
    jobs = [job for (job,) in given]
    own = [{name: t.double().requires_grad_() for name, t in job.given.items()} for job in jobs]
    x, b2 = own[0]["x"], own[0]["b2"]
    shares = [F.linear(gelu(F.linear(x, t["w1"], t["b1"])), t["w2"]) for t in own]
    whole = torch.stack(shares).sum(0)
    ((whole + b2) * jobs[0].upstream).sum().backward()
    for rank, job in enumerate(jobs):
        output = (shares[rank] if alone else whole) + len(jobs) ** power * b2
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
        "bias-divided": "Forward is right. In backward the gradient of b2 is n times too small: of "
        "b2/n a rank has the gradient of an n-th.",
        **DRIVEN,
        "copy-summed": "Forward is right. Here x, and so its gradient, lies in memory by columns, "
        "and the sum went into a copy: return what contiguous() has made.",
        "share-of-x": "Forward is right. In backward each rank has its own share of x's gradient. "
        "The sum is missing: x went into every rank's part.",
        "bias-n-times": "b2 counts n times: it is added on each rank, before the sum.",
        "own-share": "The output is the sum of all ranks' shares; each rank returns its own.",
        "other-gelu": "gelu is meant as F.gelu computes it when it is told nothing.",
        "too-many-calls": "One all_reduce of B·D numbers is enough forward, and one backward.",
    },
    mistakes={
        "bias-n-times": {"power": 1},
        "own-share": each(alone=[True], power=(0, -1)),
        "other-gelu": {"gelu": partial(F.gelu, approximate="tanh")},
    },
    diagnoses={
        "bias-divided": backward(CUT, "1/n", "b2"),
        **driven(**CUT),
        "copy-summed": lambda play: play.case.layout == "transposed" and share_of_x(play),
        "share-of-x": share_of_x,
        "too-many-calls": over_budget("calls"),
    },
)

# ---- 14.2 vocab_parallel_cross_entropy -----------------------------------------------------------

LARGE, NOTHING = "in the hundreds", "no columns"
STRAY = ("to the nearest", "to the first", "from the next")


def is_target(job: BothWays, strays: str) -> Tensor:
    """A one in the target's column, or in that of ``strays`` where another rank has it."""
    (first, targets), v = job.rest, job.given["logits"].shape[1]
    near = targets.clamp(first, first + v - 1)
    tos = (
        near,
        torch.where(near == targets, targets, first),
        targets - (targets == first + v).long(),
    )
    targets = dict(zip(STRAY, tos, strict=True)).get(strays, targets)
    return (torch.arange(first, first + v) == targets[:, None]).double()


def cross_entropy(
    given: list[tuple[BothWays]],
    alone: bool = False,
    own_top: bool = False,
    strays: str = "",
    minus_top: bool = False,
    strays_back: str = "",
    through_top: bool = False,
    chain: bool = True,
) -> None:
    """One process that has all columns. The rest are mistakes, in forward and in backward."""
    jobs = [job for (job,) in given]
    parts = [job.given["logits"].double() for job in jobs]
    whole = torch.cat(parts, 1)
    shifted = [p - (p if own_top else whole).amax(1, keepdim=True) for p in parts]
    sums = [p.exp().sum(1) for p in shifted]
    found = [(p * is_target(job, strays)).sum(1) for p, job in zip(shifted, jobs, strict=True)]
    if minus_top:
        found[0] -= (len(jobs) - 1) * whole.amax(1)
    shares = whole.softmax(1).split([p.shape[1] for p in parts], 1)
    for rank, job in enumerate(jobs):
        total = sums[rank] if alone else torch.stack(sums).sum(0)
        losses = total.log() - torch.stack(found).sum(0)
        grad = shares[rank] - is_target(job, strays_back)
        if through_top:
            grad -= grad.sum(1, keepdim=True) * F.one_hot(parts[rank].argmax(1), grad.shape[1])
        job.noted["output"] = losses.to(job.upstream.dtype)
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
        UNEVEN: "ranks have different numbers of columns. Where a rank's begin, first says.",
        NOTHING: "a rank has no columns. It takes part in each call, and has no maximum.",
        LARGE: "logits are in the hundreds. Float32 ends at e to the power of 88.",
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
    budget=[calls_at_most(lambda play, out: (3 * out.numel(), 0), calls=3)],
    hints=DRIVEN
    | {
        "one-everywhere": "Forward is right. In backward ranks without the target's column take "
        "1 from one of theirs.",
        "through-the-maximum": "Forward is right. In backward a gradient goes through the maximum. "
        "The loss does not depend on what is subtracted: it is a constant.",
        "upstream-left-out": "Forward is right. In backward each row has to be multiplied by the "
        "gradient that comes in, and is not.",
        "own-maximum": "Exponentials can be added up only if all have subtracted the same maximum.",
        "own-sum": "The sum of the exponentials is over all columns, not a rank's own.",
        "others-targets": "A rank that does not have the target's column has to add 0 for it.",
        "too-many-bytes": "Three numbers a row go into collectives, and none in backward.",
    },
    mistakes={
        "one-everywhere": each(strays_back=STRAY),
        "through-the-maximum": {"through_top": True},
        "own-maximum": {"own_top": True},
        "upstream-left-out": {"chain": False},
        "own-sum": each(alone=[True], own_top=(False, True)),
        "others-targets": [*each(strays=STRAY, strays_back=("", *STRAY)), {"minus_top": True}],
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
OUT_OF_ORDER = "the places of a rank's rows are not side by side. Who sees whom, places say."
Blocks = list[tuple[Tensor, Tensor]]  # the scores of own rows with the rows of a rank, and its v


def by_place(keys: Tensor, queries: Tensor, other: int, rank: int) -> Tensor:
    return keys <= queries[:, None]


def by_rank(keys: Tensor, queries: Tensor, other: int, rank: int) -> Tensor:
    return torch.ones(len(queries), len(keys)).tril(999 * (rank - other)) > 0


def softmax(blocks: Blocks) -> Tensor:
    return torch.cat([s for s, _ in blocks], 1).softmax(1) @ torch.cat([v for _, v in blocks])


def not_rescaled(blocks: Blocks, stays: str = "sums values") -> Tensor:
    """What has been added up stays as it is when the maximum grows."""
    tops = torch.stack([s.amax(1, keepdim=True) for s, _ in blocks]).cummax(0).values
    each = [(s - tops[-1], s - top) for (s, _), top in zip(blocks, tops, strict=True)]
    right, stale = (torch.cat(powers, 1).exp() for powers in zip(*each, strict=True))
    v = torch.cat([v for _, v in blocks])
    sums, values = (stale if name in stays else right for name in ("sums", "values"))
    return values @ v / sums.sum(1, keepdim=True)


def nan_of_nothing(blocks: Blocks, which: slice = slice(None)) -> Tensor:
    """Of these blocks, in the order in which a rank computes with them."""
    blind = torch.stack([s.isneginf().all(1) for s, _ in blocks[which] or blocks]).any(0)
    return softmax(blocks).masked_fill(blind[:, None], torch.nan)


TURNS = (range, lambda n: [0, *range(n - 1, 0, -1)])  # blocks come from the left, or the right


def attention(
    given: list[tuple[BothWays]],
    sees: Callable[[Tensor, Tensor, int, int], Tensor] = by_place,
    scale: float = 0.5,
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
            k, v = (jobs[other].given[name].double() for name in "kv")
            hidden = ~sees(jobs[other].rest[0], where, other, rank)
            blocks.append(((q @ k.t() / q.shape[1] ** scale).masked_fill(hidden, -torch.inf), v))
        job.noted["output"] = blend(blocks).to(job.given["q"].dtype)
        job.noted |= dict.fromkeys(("q.grad", "k.grad", "v.grad"))
        if job.counted:
            job.noted |= COUNTED


def rows(case: Case, rank: int) -> tuple[BothWays]:
    o, n = case.options, case.world
    owner = [LAYOUTS[o["places"]](place, n, o["rows"]) for place in range(o["rows"])]
    where = torch.tensor([place for place, mine in enumerate(owner) if mine == rank])
    given = {name: drawn(case, name, o["rows"], case.length)[where] for name in "qkv"}
    if o.get("scores"):
        given["q"] *= 400
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
    ],
    regimes=lambda rng: cases(f"{NAMES} counted", (16, 32, 64, "in blocks", True)),
    budget=[
        calls_at_most(lambda play, out: (2 * play.case.world, 0), calls=2),  # lengths, of 8 bytes
        sends_at_most(lambda play: 3 * (play.case.world - 1)),
        bytes_at_most(lambda play: sum(blocks_of(play)) - min(blocks_of(play))),
        peaks_at(three_blocks),
    ],
    hints={
        "changes-argument": DRIVEN["changes-argument"],
        "mean-of-blocks": "Results of blocks are averaged. Where scores are larger, more is due.",
        "not-rescaled": "When a block has a larger maximum, what has been added up until then is "
        "too large for it: the sum, and the sum of values, have to shrink by the same factor.",
        "nan-of-nothing": "A row that sees nothing of some block becomes NaN: 0/0, and 0 · NaN.",
        "by-rank": "Who sees whom follows ranks. What comes before a row, the places say.",
        "own-places": "A block is masked with a rank's own places. They travel with their rows.",
        "not-causal": "Rows see places that come after their own.",
        "not-itself": "A row sees itself as well: its own place is not after its own.",
        "scale": "Scores are divided by √d, the root of the number of columns.",
        "block-missing": "A block is left out: a rank's own comes first, and n − 1 come round.",
        "gathers": "Rows go through a collective. Which neighbour could hand its block on?",
        "comes-home": "n − 1 blocks go to one neighbour. What goes beyond them: does a last "
        "message bring a block home, or is a block longer than its keys, values and places?",
        "blocks-kept": "Too many blocks are alive at once. One is computed with while the next "
        "comes. Which list, or which copy, keeps the others?",
    },
    mistakes={
        "mean-of-blocks": {
            "blend": lambda blocks: torch.stack([s.softmax(1) @ v for s, v in blocks]).mean(0)
        },
        "not-rescaled": each(
            blend=(not_rescaled, *(partial(not_rescaled, stays=s) for s in ("sums", "values"))),
            turns=TURNS,
        ),
        "nan-of-nothing": each(
            blend=(nan_of_nothing, partial(nan_of_nothing, which=slice(1, 2))), turns=TURNS
        ),
        "by-rank": {"sees": by_rank},
        "own-places": {"sees": lambda keys, rows, *of: by_place(rows, rows, *of)},
        "not-causal": {"sees": lambda keys, rows, *of: by_place(keys, rows + 1000, *of)},
        "not-itself": each(
            sees=[lambda keys, rows, *of: by_place(keys, rows - 1, *of)],
            blend=(softmax, nan_of_nothing, partial(nan_of_nothing, which=slice(1))),
        ),
        "scale": each(scale=(1, 0)),
        "block-missing": each(turns=(lambda n: range(n - 1), lambda n: [0, *range(2, n)])),
    },
    diagnoses={
        "changes-argument": says("the caller's"),
        "gathers": over_budget("calls"),
        "comes-home": over_budget("sends", "bytes"),
        "blocks-kept": over_budget("memory"),
    },
)
