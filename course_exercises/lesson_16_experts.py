"""Lesson 16: a mixture of experts, which live on different ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_check.cases import Case
from course_check.cases import rows as cases
from course_check.exercise import Finding, Play
from course_check.harness.seen import Seen
from course_check.rules import without_a_word
from course_check.usual_diagnoses import found, says
from course_exercises.both_ways import DRIVEN, backward, calls_at_most, driven
from course_exercises.declare import each, exercise, marked
from course_exercises.drivers.driven import BothWays
from course_exercises.gradients import passes

NO_TOKENS, UNEVEN = "a rank without tokens", "batches of different lengths"
WORDS: dict[str, str | None] = {
    NO_TOKENS: "a rank has no tokens. It takes part in each call all the same.",
    UNEVEN: "ranks have different numbers of tokens. Which line takes its own number for another "
    "rank's?",
}


def normal(case: Case, who: str, *shape: int) -> Tensor:
    """Drawn from the normal distribution: of such numbers no two are equally large."""
    source = torch.Generator().manual_seed(case.random(who).getrandbits(40))
    return torch.randn(shape, generator=source).to(getattr(torch, case.dtype))


def special(case: Case) -> set[str]:
    tokens = case.options["tokens"]
    return marked({NO_TOKENS: 0 in tokens, UNEVEN: len({*tokens} - {0}) > 1})


# ---- 16.1 moe_layer ------------------------------------------------------------------------------

EXPERTS = {"w1": 0, "w2": 0}  # each rank has some, side by side


def by_expert(e: Tensor, sent: Tensor, mine: int, n: int) -> Tensor:
    """Whose weights rows meet that come by rank, where they are taken as if they came by expert."""
    rows = e[sent]
    arrive = (rows // mine).argsort(stable=True)
    return torch.empty_like(e).index_copy(0, sent[arrive], rows.sort().values)


def first_alone(p: Tensor) -> Tensor:
    return p * (torch.arange(p.shape[1]) < 1)


# Rows that come back are taken as they come, or put where the inverse permutation says.
ASTRAY = [lambda sent: torch.arange(len(sent)), Tensor.argsort]


def mixture(
    given: list[tuple[BothWays]],
    normalise: Callable[[Tensor], Tensor] = lambda p: p / p.sum(1, keepdim=True),
    meets: Callable[..., Tensor] = lambda e, sent, mine, n: e,
    hidden: Callable[[Tensor], Tensor] = F.silu,
    weighs: Callable[[Tensor], Tensor] = lambda sent: sent,
    lands: Callable[[Tensor], Tensor] = lambda sent: sent,
    read: Callable[[Tensor], Tensor] = lambda x: x,
    known: Callable[[Tensor], Tensor] = lambda weights: weights,
    goes_out: Callable[[Tensor], Tensor] = lambda x: x,
    comes_back: Callable[[Tensor], Tensor] = lambda y: y,
    shared: Callable[[list[Any]], list[Any]] = lambda routers: routers,
) -> None:
    """One process that has all tokens and all experts. The rest are mistakes."""
    jobs = [job for (job,) in given]
    own = [{name: t.double().requires_grad_() for name, t in job.given.items()} for job in jobs]
    x, w1, w2 = (torch.cat([t[name] for t in own]) for name in ("x", "w1", "w2"))
    (k,), n = jobs[0].rest, len(jobs)
    p = torch.cat([(read(t["x"]) @ t["router"].t()).softmax(1) for t in own])
    best, chosen = p.topk(k, 1)
    e, tokens = chosen.flatten(), torch.tensor([len(t["x"]) for t in own])
    sent = (e + len(w1) * torch.arange(n).repeat_interleave(k * tokens)).argsort(stable=True)
    at = meets(e, sent, len(w1) // n, n)
    inner = hidden(torch.einsum("rd,rhd->rh", goes_out(x).repeat_interleave(k, 0), w1[at]))
    rows = comes_back(torch.einsum("rh,rdh->rd", inner, w2[at]))[sent]
    weights = known(normalise(best)).flatten()[weighs(sent), None]
    out = torch.zeros_like(x).index_add(0, lands(sent) // k, weights * rows).split(tokens.tolist())
    sum((y * job.upstream).sum() for y, job in zip(out, jobs, strict=True)).backward()
    for t, grad in zip(own, shared([t["router"].grad for t in own]), strict=True):
        t["router"].grad = grad
    for job, t, y in zip(jobs, own, out, strict=True):
        left = {"output": y.detach()} | {f"{name}.grad": leaf.grad for name, leaf in t.items()}
        job.noted |= {
            name: v if v is None else v.to(job.upstream.dtype) for name, v in left.items()
        }


def layer(case: Case, rank: int) -> tuple[BothWays]:
    tokens, mine, k = (case.options[name] for name in ("tokens", "experts", "k"))
    d, h = case.length, case.length + 1
    x, w1, w2 = (tokens[rank], d), (mine, h, d), (mine, d, h)
    shapes = {"x": x, "router": (case.world * mine, d), "w1": w1, "w2": w2}
    given = {
        name: normal(case, f"{name} {rank if name != 'router' else ''}", *shape)
        for name, shape in shapes.items()
    }
    return (BothWays(given, (k,), normal(case, f"dy {rank}", *x)),)


def zero_or_none(want: list[Seen], got: list[Seen]) -> list[Seen]:
    """A gradient that is zero may be None: no row came to the expert, or its weight is always 1."""
    for mine, theirs in zip(want, got, strict=True):
        for name, value in mine.args[0].items():
            is_zero = name.endswith(".grad") and not value.round(decimals=6).any()
            if is_zero and isinstance(theirs.args[0], dict) and theirs.args[0].get(name) is None:
                mine.args[0][name] = None
    return want


def rows_of(play: Play) -> list[int]:
    """By rank, how many rows it sends out, and gives back to others: those of its experts."""
    jobs = [play.given(rank) for rank in play.ranks]
    chosen = [(job.given["x"] @ job.given["router"].t()).topk(*job.rest, 1).indices for job in jobs]
    mine = len(jobs[0].given["w1"])
    by_owner = torch.bincount(torch.cat(chosen).flatten() // mine, minlength=len(jobs))
    return [e.numel() + int(rows) for e, rows in zip(chosen, by_owner, strict=True)]


def rows_travel_once(play: Play) -> Iterator[Finding]:
    """To each expert that was chosen and back, and 8·E bytes forward; and none to everyone."""
    for rank, when, events in passes(play):
        x, counts = play.given(rank).given["x"], 8 * len(play.given(rank).given["router"])
        most = rows_of(play)[rank] * x.shape[1] * x.itemsize + counts * (when == "forward")
        sent = sum(e.bytes_in for e in events)
        if sent > most:
            yield Finding("rows", f"rank {rank}, {when}: {sent} bytes, at most {most}", rank)
        for e in events:
            if e.op.startswith(("all_gather", "all_reduce", "broadcast")) and e.bytes_in > counts:
                yield Finding("to-everyone", f"rank {rank}, {when}: {e.op} of {e.nbytes}", rank)


NAMES = "tokens experts k"  # of options
exercise(
    "16.1 moe_layer",
    mixture,
    inputs=layer,
    settle=zero_or_none,
    tolerance=1e-4,
    length_is="d",
    words=WORDS,
    special=special,
    core=lambda rng: [
        *cases(NAMES, (2, 2, (2, 2), 1, 1), (2, 3, (3, 3), 2, 2), (2, 4, (4, 3), 2, 1), seed=1),
        *cases(NAMES, (3, 4, (5, 5, 5), 2, 1), (3, 3, (3, 5, 4), 1, 2), (4, 6, (4,) * 4, 1, 1)),
        *cases(NAMES, (4, 8, (5, 2, 6, 3), 2, 2), (5, 4, (6,) * 5, rng.randrange(1, 3), 2)),
    ],
    sturdy=lambda rng: [
        *cases(NAMES, (1, 3, (4,), 4, 2), (2, 3, (0, 5), 2, 2), (4, 2, (1, 0, 0, 2), 1, 1)),
        *cases(NAMES, (2, 2, (0, 0), 2, 1), (3, 3, (4, 2, 3), 4, 3), (8, 2, (3,) * 8, 1, 2)),
        *cases(NAMES, (3, 4, (4, 1, 3), 2, 2), dtype="float64"),
    ],
    budget=[rows_travel_once],
    hints={
        "counts": "A rank sends more elements than another one expects, or fewer. Who knows how "
        "many there are, and whom does it tell? Or are two lists of sizes swapped?",
        "backward-sizes": "Sizes do not fit the rows. When rows go back, on the way home and in "
        "backward, the two lists of sizes have to be swapped.",
        "experts-divided": "In backward an expert's gradient is n times too small. All tokens that "
        "it has seen are in its gradient already. What is averaged?",
        "call-unseen": "In backward a gradient ends at a message: autograd does not see torch's "
        "plain calls. What is done in backward for rows that have travelled?",
        "router-unseen": "In backward no gradient comes to the router, or x, through the weights.",
        "router-shared": "In backward the router's gradient is not that of this rank's tokens.",
        "not-normalised": "The k weights of a token are divided by their sum, and only once.",
        "unweighted": "The experts' rows are added up with equal weights.",
        "best-alone": "Only the best expert of each token counts. k of them do.",
        "other-expert": "Rows meet other experts' weights. In which order do they come, and on "
        "which rank is each expert?",
        "by-arrival": "Rows come back in the order in which they were sent, by expert. Which token "
        "does each belong to, and which weight?",
        "other-activation": "The activation between an expert's two layers is silu.",
        "to-everyone": "Rows go to ranks that have no use for them. Which call sends to everybody?",
        "rows": "More is sent than a row for each expert that was chosen, there and back, and E "
        "numbers of 8 bytes. What else travels, or travels twice?",
    },
    mistakes={
        "call-unseen": each(goes_out=[Tensor.detach]) + each(comes_back=[Tensor.detach]),
        "router-unseen": each(known=[Tensor.detach]) + each(read=[Tensor.detach]),
        "router-shared": each(
            shared=(lambda r: [sum(r)] * len(r), lambda r: [sum(r) / len(r)] * len(r))
        ),
        "not-normalised": each(normalise=(lambda p: p, lambda p: p.softmax(1))),
        "unweighted": each(normalise=(torch.ones_like, lambda p: torch.ones_like(p) / p.shape[1])),
        "best-alone": each(
            normalise=(
                lambda p: first_alone(p) / p.sum(1, keepdim=True),
                lambda p: first_alone(p) / p[:, :1],
            )
        ),
        "other-expert": each(
            meets=(
                by_expert,
                lambda e, sent, mine, n: e // mine * mine,  # all meet a rank's first
                lambda e, sent, mine, n: e % n * mine + e // n,  # experts are dealt out to ranks
                lambda e, sent, mine, n: e[sent],  # rows go out unsorted
            )
        ),
        "by-arrival": each(lands=ASTRAY) + each(weighs=ASTRAY) + each(lands=ASTRAY, weighs=ASTRAY),
        "other-activation": each(hidden=(F.relu, F.gelu, F.sigmoid, lambda t: t)),
    },
    diagnoses={
        "counts": says("which expects"),
        "backward-sizes": says("invalid gradient", "split_sizes to sum"),
        "experts-divided": backward(EXPERTS, "1/n", *EXPERTS),
    },
)

# ---- 16.2 place_experts --------------------------------------------------------------------------

Loads = list[float]


def find_best(loads: Loads, n: int) -> float:
    """The smallest possible load of the rank that has most: all placements are tried."""
    if n == 1:
        return sum(loads)
    first, *others = loads
    found = []
    for mates in combinations(range(len(others)), len(loads) // n - 1):
        left = [load for i, load in enumerate(others) if i not in mates]
        found.append(max(first + sum(others[i] for i in mates), find_best(left, n - 1)))
    return min(found)


def by_size(loads: Loads) -> list[int]:
    return sorted(range(len(loads)), key=lambda e: -loads[e])


def place(
    given: list[tuple[Loads, int]], order: Callable[[Loads], list[int]] = by_size
) -> list[list[list[int]]]:
    """The largest first, each to the emptiest rank that has room."""
    [(loads, n)] = given
    ranks: list[list[int]] = [[] for _ in range(n)]
    for e in order(loads):
        free = [rank for rank in ranks if len(rank) < len(loads) // n]
        min(free, key=lambda rank: sum(loads[i] for i in rank)).append(e)
    return [ranks]


def in_their_place(play: Play) -> Iterator[Finding]:
    """Every expert on one rank, equally many on each, and none with more than 4/3 of the best."""
    [(loads, n)] = play.inputs[0]
    for got in play.returned:
        try:
            named = {e for rank in got for e in rank}
        except TypeError:
            yield Finding("type", "returns", 0, got, place(play.inputs[0])[0])
            return
        best, text = find_best(loads, n), f"it returns {got}"
        if named != {*range(len(loads))} or [len(loads), n] != [sum(map(len, got)), len(got)]:
            yield Finding("places", text)
        elif {*map(len, got)} != {len(loads) // n}:
            yield Finding("room", text)
        elif any(call[0].returned != got for call in play.seen):
            yield Finding("unequal", f"{text}, and then {play.seen[-1][0].returned}")
        elif (most := max(sum(loads[e] for e in rank) for rank in got)) > 4 / 3 * best + 1e-9:
            yield Finding("heavy", f"{text}: a rank has {most:g}, and {best:g} is possible")


def placed(order: Callable[[Loads], list[int]]) -> Callable[[Play], bool]:
    """The experts lie as if they had been placed in this order."""
    return lambda play: found("heavy")(play) and play.returned == place(play.inputs[0], order)


exercise(
    "16.2 place_experts",
    place,
    inputs=lambda case, rank: (case.options["loads"], case.options["n"]),
    in_ranks=False,
    free=["returned"],
    rules=[without_a_word, in_their_place],
    core=lambda rng: cases(
        "loads n",
        (1, 0, [5.0, 10.0, 6.0, 1.0], 2),
        (1, 0, [1.0, 2.0, 3.0, 9.0, 1.0, 8.0], 2),
        (1, 0, [1.0, 0.1, 1.0, 0.1, 1.0, 0.1, 1.0, 0.1, 1.0, 4.6], 2),
        (1, 0, [4.0, 4.0, 4.0, 1.0, 0.5, 0.5, 0.5, 4.0, 4.0], 3),
        (1, 0, [1.0, 9.0, 2.0, 3.0, 30.0, 4.0, 8.0, 2.0], 4),
        (1, 0, [0.1, 2.5, 0.4, 0.2, 0.3, 1.5, 0.1, 0.6, 0.3, 0.2, 4.0, 0.9], 4),
    ),
    sturdy=lambda rng: [
        *cases("loads n", (1, 0, [3.0, 1.0, 2.0], 1), (1, 0, [3.0, 1.0, 2.0], 3)),
        *cases("loads n", (1, 0, [0.0] * 4, 2), (1, 0, [2.0] * 6, 3), calls=2),
    ],
    hints={
        "places": "Each expert is named once, by its number from 0 on, in one list for each rank.",
        "room": "Each rank has room for E/n experts. Which rank with room has the smallest load?",
        "smallest-first": "The smallest loads go first, and the largest find no good place.",
        "unsorted": "Experts are placed by their numbers. What if a large one comes last?",
        "unequal": "Two calls with the same loads differ. All ranks have to make the same list.",
        "heavy": "A rank has too much. Which expert goes first, and which rank gets the next one?",
    },
    diagnoses={
        "smallest-first": placed(lambda loads: by_size([-load for load in loads])),
        "unsorted": placed(lambda loads: [*range(len(loads))]),
    },
)

# ---- 16.3 balance_loss ---------------------------------------------------------------------------

Weights = Callable[[Tensor, int], Tensor]  # of the ranks' shares, by their tokens, on this rank


def by_tokens(tokens: Tensor, rank: int) -> Tensor:
    return tokens / tokens.sum().clamp(min=1)


def alike(tokens: Tensor, rank: int) -> Tensor:
    return torch.ones_like(tokens) / len(tokens)


def own(tokens: Tensor, rank: int) -> Tensor:
    return (torch.arange(len(tokens)) == rank).double()


def here(tokens: Tensor, rank: int) -> Tensor:
    return tokens[rank]


def here_for_all(tokens: Tensor, rank: int) -> Tensor:
    return tokens[rank] * len(tokens)


OWN: dict[str, Any] = {"weigh_f": own, "weigh_p": own, "divides_back": here}
MEAN = {"of_losses": lambda losses, rank: losses.mean()}


def balance(
    given: list[tuple[BothWays]],
    weigh_f: Weights = by_tokens,
    weigh_p: Weights = by_tokens,
    counted: Callable[[BothWays], Tensor] = lambda job: job.rest[0],
    scale: Callable[[int, int], float] = lambda experts, k: experts,
    back_f: Weights | None = None,
    of_losses: Callable[[Tensor, int], Tensor] = lambda losses, rank: losses[rank],
    divides_back: Weights = lambda tokens, rank: tokens.sum(),
) -> None:
    """One process that has all tokens. The rest are mistakes."""
    jobs = [job for (job,) in given]
    experts, k = jobs[0].given["p"].shape[1], jobs[0].rest[0].shape[1]
    tokens = torch.tensor([len(job.given["p"]) for job in jobs]).double()
    counts = [torch.bincount(counted(job).flatten(), minlength=experts) for job in jobs]
    f = torch.stack([count.double() / count.sum().clamp(min=1) for count in counts])
    p = torch.stack([job.given["p"].double().sum(0) for job in jobs]) / tokens.clamp(min=1)[:, None]
    ways = ((weigh_f, f), (weigh_p, p), (back_f or weigh_f, f))
    shares = [[weigh(tokens, rank) @ t for weigh, t in ways] for rank in range(len(jobs))]
    losses = torch.stack([scale(experts, k) * (f * p).sum() for f, p, _ in shares])
    for rank, (job, (_, _, f)) in enumerate(zip(jobs, shares, strict=True)):
        dtype = job.upstream.dtype
        job.noted["output"] = of_losses(losses, rank).to(dtype)
        grad = job.upstream * scale(experts, k) * f / divides_back(tokens, rank).clamp(min=1)
        job.noted["p.grad"] = grad.to(dtype).expand_as(job.given["p"])


def probabilities(case: Case, rank: int) -> tuple[BothWays]:
    tokens, k = case.options["tokens"][rank], case.options["k"]
    p = normal(case, f"p {rank}", tokens, case.length).softmax(1)
    chosen = (p + normal(case, "bias", case.length) / 4).topk(k, 1).indices  # as a bias has it
    return (BothWays({"p": p}, (chosen,), normal(case, "dy")),)


exercise(
    "16.3 balance_loss",
    balance,
    inputs=probabilities,
    tolerance=1e-5,
    length_is="experts",
    words=WORDS,
    special=lambda case: special(case) - {UNEVEN},
    core=lambda rng: [
        *cases("tokens k", (2, 2, (2, 2), 1), (2, 3, (3, 1), 1), (2, 4, (3, 3), 2)),
        *cases("tokens k", (3, 4, (2, 5, 3), 2), (4, 4, (4, 1, 2, 5), 1), (3, 6, (2, 2, 2), 3)),
        *cases("tokens k", (4, rng.randrange(5, 9), (3, 7, 1, 4), 2)),
    ],
    sturdy=lambda rng: [
        *cases("tokens k", (1, 3, (4,), 2), (2, 3, (0, 3), 1), (3, 4, (2, 0, 5), 2)),
        *cases("tokens k", (16, 4, (2,) * 16, 1)),
        *cases("tokens k", (3, 4, (2, 5, 3), 2), dtype="float64"),
    ],
    budget=[calls_at_most(lambda play, out: (2 * (2 * play.case.length + 1), 0), calls=1)],
    hints=DRIVEN
    | {
        "own-loss": "Each rank has the loss of its own tokens, or the mean of such losses.",
        "ranks-alike": "Means of ranks are averaged, as if ranks had equally many tokens.",
        "own-part": "One of f and P is that of this rank's own tokens.",
        "not-by-k": "f is a share of all choices: of k for each token.",
        "largest": "f counts the largest p of each token. Those in chosen can be others.",
        "first-choice": "f counts the first choice of each token alone.",
        "scale": "The sum of f·P over the experts is multiplied by their number, once.",
        "own-tokens-back": "In backward f or the number of tokens is this rank's, not that of all.",
        "calls": "One all_reduce carries E counts, E sums and the tokens; backward makes no call.",
    },
    mistakes={
        "own-loss": [OWN, OWN | MEAN, OWN | MEAN | {"divides_back": here_for_all}],
        "ranks-alike": [
            *each(
                weigh_f=(alike, by_tokens),
                weigh_p=[alike],
                divides_back=[here_for_all],
            ),
            {"weigh_f": alike},
        ],
        "own-part": [{"weigh_f": own}, {"weigh_p": own}],
        "not-by-k": {"scale": lambda experts, k: experts * k},
        "first-choice": {"counted": lambda job: job.rest[0][:, :1]},
        "largest": {"counted": lambda job: job.given["p"].topk(job.rest[0].shape[1], 1).indices},
        "scale": each(scale=(lambda experts, k: 1, lambda experts, k: experts**2)),
        "own-tokens-back": each(back_f=[own]) + each(back_f=(None, own), divides_back=[here]),
    },
    diagnoses=driven(p=0),
)
