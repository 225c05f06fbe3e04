"""Lesson 04: the sum of everybody's tensor, along a ring, and what it costs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from operator import floordiv, truediv
from typing import Any

import torch
from torch import Tensor

from course_exercises.formulas import formula, networks
from course_lib.beside.seen import Seen
from course_lib.checks import rules
from course_lib.checks.cases import Case, cases, chunked, crowd, hostile, tensor
from course_lib.checks.compare import same
from course_lib.checks.exercise import Diagnosis, Exercise, Finding, Play, declare, turned

FEWER = {
    "fewer chunks": (
        "torch.chunk makes fewer chunks than there are ranks",
        "How many chunks does chunk(4) make of 5 elements?",
    ),
}


def cut_up(case: Case) -> set[str]:
    """torch.chunk, which rounds the size up, may make fewer chunks than there are ranks."""
    fewer = len(torch.empty(case.length).chunk(case.world)) < case.world
    return chunked(case) | ({"fewer chunks"} if fewer else set())


WRONG_BUFFER = (
    "What arrives is never added: each rank adds something of its own again. Which "
    "tensor did recv fill?"
)
WRONG_CHUNK = (
    "What arrives goes into another chunk than its own. Which chunk does the left "
    "neighbour send in this step?"
)
OVERWRITTEN = (
    "received-over-own",
    "What arrives is received into the chunk that it is to be "
    "added to: what was in it is gone before anything can be added.",
)
OF_ITS_OWN: list[Callable] = [
    lambda own, came, sent: own + sent,
    lambda own, came, sent: own + own,
    lambda own, came, sent: sent,
]


# The inbox is the chunk itself: what was in it is gone.
OVER_OWN: list[Callable] = [
    lambda own, came, sent: came + came,
    lambda own, came, sent: came + sent,
]


# ---- a ring in one process -----------------------------------------------------------------------


def add(own: Tensor, came: Tensor, sent: Tensor) -> Tensor:
    return own + came


def turn(
    chunks: list[list[Tensor]],
    steps: int,
    first: int,
    way: int = 1,
    next: int = -1,
    into: int = -1,
    then: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda own, came, sent: came,
) -> None:
    """In each step every rank sends the chunk that is ``next`` to the one it has sent last, and the
    one that is ``into`` from it takes what came; ``first`` is how far the first one is from its own
    number. ``then`` makes of its own chunk, of what came and of what it has sent what it has
    afterwards."""
    n = len(chunks)
    ranks = [by_number[::way] for by_number in chunks[::way]]
    for step in range(steps):
        out = [(r + first + next * step) % n for r in range(n)]
        sent = [ranks[r][out[r]].clone() for r in range(n)]
        for r in range(n):
            own = ranks[r][(out[r] + into) % n]
            own.copy_(then(own, sent[r - 1], sent[r]))


# ---- 04.1 ring_all_reduce ------------------------------------------------------------------------


def ring(
    given: list[tuple],
    way: int = 1,
    first: int = 0,
    adds: int = 0,
    gathers: int = 0,
    start: int = 1,
    reduce: Callable = add,
    gather: Callable = lambda own, came, sent: came,
    into: int = -1,
    lands: int = -1,
    adds_back: Callable[[int], int] | None = None,
) -> None:
    """The ring step by step: n − 1 steps that add, and n − 1 that hand finished chunks on."""
    n = len(given)
    flat = [t.flatten().clone() for (t,) in given]
    chunks = [list(t.tensor_split(n)) for t in flat]
    if adds_back is not None:  # whole tensors go round; in a step is added what is so far back
        flat = [
            f + sum(flat[(rank - way * adds_back(step)) % n] for step in range(n - 1))
            for rank, f in enumerate(flat)
        ]
    elif n > 1:
        turn(chunks, n - 1 + adds, first, way, into=into, then=reduce)
        turn(chunks, max(0, n - 1 + gathers), first + start, way, into=lands, then=gather)
    for (t,), end in zip(given, flat, strict=True):
        t.copy_(end.view(t.shape))


BUFFERS = (  # whose tensor is added in a step that should add what just came from the left
    lambda step: 0,  # its own; what it has sent; of two that take turns always the one or the other
    lambda step: step,
    lambda step: 2 * ((step + 1) // 2),
    lambda step: 2 * (step // 2) + 1,
)


def any_ring(*several: dict[str, Any]) -> list[dict[str, Any]]:
    """Of knobs, those on rings that go either way round and begin with any chunk."""
    return [
        {"way": way, "first": first} | knobs
        for way in (1, -1)
        for first in range(-2, 3)
        for knobs in several
    ]


def ring_core(rng: random.Random) -> list[Case]:
    return [
        Case(2, 2),
        Case(3, 6),
        Case(4, 4),
        Case(3, 3),
        Case(3, 6, calls=2),
        Case(5, 5 * rng.randrange(4, 50), numbers="random"),
    ]


def one_way_round(play: Play) -> Iterator[Finding]:
    """Messages go to one neighbour, on every rank the same one; so they come from the other."""
    world = play.case.world
    for step in (1, -1):
        if all(rules.peers(play, r) <= {(r + step) % world} for r in range(world)):
            return
    rank = next(r for r in range(world) if not rules.peers(play, r) <= {(r + 1) % world})
    mine = ", ".join(map(str, sorted(rules.peers(play, rank))))
    text = f"rank {rank} sends to {mine}; its right neighbour is {(rank + 1) % world}"
    yield Finding("peers", text, rank)


def in_sum(play: Play) -> int:
    return -(-play.case.length // play.case.world) * play.given(0).element_size()


wrong = turned(ring)
declare(
    Exercise(
        "04.1",
        "ring_all_reduce",
        ring,
        inputs=lambda case, rank: (tensor(case, rank),),
        core=ring_core,
        sturdy=lambda rng: [
            Case(1, 3),
            *cases((2,), (0, 1)),
            *cases((3, 4), (2, 5)),
            Case(crowd(rng), 25),
            Case(2, 4, layout="transposed"),
            *hostile(3, 8, layouts=(2, 8)),
        ],
        words=FEWER,
        special=cut_up,
        rules=[rules.no_collectives],
        budget=[
            one_way_round,
            rules.messages_of_at_most(in_sum),
            rules.sends_at_most(lambda p: 2 * (p.case.world - 1)),
            rules.bytes_at_most(lambda p: 2 * (p.case.world - 1) * in_sum(p)),
            rules.bytes_in_total_at_least(lambda p: 2 * (p.case.world - 1) * p.given(0).nbytes),
        ],
        mistakes=[
            wrong(
                "unfinished",
                "Somebody is missing in each sum: what goes round in the second half "
                "is not finished. Does the first half add what arrives, in n − 1 steps, and which "
                "chunk is complete on this rank then?",
                *any_ring(
                    {"start": 0},
                    {"reduce": lambda own, came, sent: came},
                    {"adds": -1},
                    {"start": 2},
                    {"adds": -1, "start": 2},
                ),
            ),
            wrong(
                "wrong-buffer",
                WRONG_BUFFER,
                *any_ring(
                    *({"adds_back": back} for back in BUFFERS),
                    *(
                        {"reduce": reduce, "start": start}
                        for start in (1, 2)
                        for reduce in OF_ITS_OWN
                    ),
                ),
            ),
            wrong(
                "wrong-chunk",
                WRONG_CHUNK,
                *any_ring(
                    {"into": 0}, {"into": 1}, {"lands": 0}, {"lands": 1}, {"into": 0, "lands": 0}
                ),
            ),
            wrong(
                "added-twice",
                "Some ranks are in the sum more than once. How many steps does the "
                "adding half take, and does the second half add, too?",
                *any_ring(
                    {"gather": add}, *({"adds": 1, "start": 0, "gathers": k} for k in (0, -1))
                ),
            ),
            wrong(
                "gather-short",
                "The sums are finished, and not all of them have come by every rank. "
                "How many steps does the second half take?",
                *any_ring({"gathers": -1}),
            ),
            wrong(
                "not-gathered",
                "Each sum is finished on one rank, and on no other: nothing has come "
                "of the second half. What is done with what it receives?",
                *any_ring({"gathers": -99}),
            ),
            wrong(
                *OVERWRITTEN,
                *any_ring(*({"reduce": r, "start": k} for k in (1, 2) for r in OVER_OWN)),
            ),
        ],
    )
)


# ---- 04.2 ring_reduce_scatter, 04.3 ring_all_gather ----------------------------------------------


def chunks_of(case: Case, rank: int) -> list[Tensor]:
    """The case's tensor of this rank in n contiguous chunks."""
    return [c.clone() for c in tensor(case, rank).flatten().tensor_split(case.world)]


def scattered(
    given: list[tuple],
    way: int = 1,
    first: int = 0,
    adds: int = 0,
    off: int = 0,
    into: int = -1,
    next: int = -1,
    reduce: Callable = add,
) -> list[int]:
    """The adding half; returns the number of the chunk that is complete, or another one's."""
    chunks = [args[0] for args in given]
    n = len(chunks)
    turn(chunks, n - 1 + adds if n > 1 else 0, first, way, next, into, reduce)
    numbers = [(r + first + 1 + off) % n for r in range(n)]
    return numbers if way == 1 else [n - 1 - i for i in reversed(numbers)]


def as_owned(want: list[Seen], got: list[Seen]) -> list[Seen]:
    """Any chunk may be a rank's, each rank's another, and what the other chunks hold is free. Of a
    rank that names the wrong one, the one that it has finished is wanted."""
    sums = {w.returned: w.args[0][w.returned] for w in want}
    fair = all(type(g.returned) is int for g in got) and {g.returned for g in got} == set(sums)
    for w, g in zip(want, got, strict=True):
        complete = bool(g.args) and len(g.args[0]) == len(want)
        if fair:
            finished = [i for i in sums if complete and same(g.args[0][i], sums[i])]
            w.returned = g.returned if g.returned in finished else (*finished, g.returned)[0]
        if complete:
            w.args = ([sums[i] if i == w.returned else c for i, c in enumerate(g.args[0])],)
    return want


wrong = turned(scattered)
declare(
    Exercise(
        "04.2",
        "ring_reduce_scatter",
        scattered,
        inputs=lambda case, rank: (chunks_of(case, rank),),
        core=ring_core,
        sturdy=lambda rng: [
            Case(1, 3),
            *cases((2,), (0, 1)),
            *cases((3, 4), (2, 5)),
            Case(crowd(rng), 25),
            *hostile(3, 8)[2:],
        ],
        special=chunked,
        settle=as_owned,
        rules=[rules.no_collectives],
        diagnoses=[
            Diagnosis(
                "owners",
                "Each rank finishes its own chunk, 0 to n − 1. Two name the "
                "same one here, or one names a chunk that does not exist.",
                lambda p: (
                    p.done
                    and all(type(s.returned) is int for s in p.seen[0])
                    and {s.returned for s in p.seen[0]} != set(range(p.case.world))
                ),
            )
        ],
        mistakes=[
            wrong(
                "nothing-added",
                "What arrives takes the place of what was there: nothing is added.",
                *any_ring(
                    *({"reduce": lambda own, came, sent: came, "off": k} for k in (0, 1, -1))
                ),
            ),
            wrong(
                "wrong-buffer", WRONG_BUFFER, *any_ring(*({"reduce": r} for r in OF_ITS_OWN[:2]))
            ),
            wrong(
                "wrong-chunk",
                WRONG_CHUNK,
                *any_ring(
                    *({"into": i, "off": k} for i in (0, 1) for k in (0, 1, -1)),
                    *({"into": 1, "next": 1, "off": k} for k in (0, -1)),
                ),
            ),
            wrong(
                "same-chunk",
                "In every step a rank sends the same chunk again. What it has just "
                "added up is what the next rank needs.",
                *any_ring(*({"next": 0, "off": k} for k in (0, 1, -1, -2))),
            ),
            wrong(
                *OVERWRITTEN,
                *any_ring(*({"reduce": r, "off": k} for k in (0, 1, -1) for r in OVER_OWN)),
            ),
            wrong(
                "wrong-index",
                "One chunk is complete on each rank, and another one's number is "
                "returned. Follow the last message: which chunk did it carry?",
                *any_ring({"off": 1}, {"off": -1}, {"off": 2}, {"off": -2}),
            ),
            wrong(
                "miscounted",
                "In the chunk that is returned somebody is missing, or is there twice. "
                "How many links does a chunk pass to meet every rank once?",
                *any_ring(*({"adds": a, "off": k} for a in (1, -1) for k in (0, 1, -1))),
            ),
        ],
    )
)


def finished(case: Case, rank: int) -> tuple[list[Tensor], int]:
    """Chunks of which number (rank + c) mod n is finished; in the others something is left over."""
    owned = (rank + case.options["c"]) % case.world
    whole = chunks_of(case, 0)
    return [c if i == owned else torch.full_like(c, 3) for i, c in enumerate(whole)], owned


def handed_round(
    given: list[tuple],
    steps: int = 0,
    c: int | None = None,
    way: int = 1,
    next: int = -1,
    into: int = -1,
    gather: Callable = lambda own, came, sent: came,
) -> None:
    """Every rank has every chunk as its owner had it; by turns, so that a turn can be left out."""
    chunks, n = [args[0] for args in given], len(given)
    first = given[0][1] if way == 1 else -given[-1][1] - 1
    turn(chunks, max(0, n - 1 + steps), first if c is None else c, way, next, into, gather)


def with_owners(worlds: tuple[int, ...], length: int, **rest: Any) -> list[Case]:
    return [Case(w, length, options={"c": c}, **rest) for w in worlds for c in range(min(w, 3))]


wrong = turned(handed_round)
declare(
    Exercise(
        "04.3",
        "ring_all_gather",
        handed_round,
        inputs=finished,
        core=lambda rng: [
            *with_owners((2,), 2),
            *with_owners((3,), 3),
            Case(4, 4, options={"c": 3}),
            Case(5, 5 * rng.randrange(4, 50), numbers="random", options={"c": rng.randrange(5)}),
        ],
        sturdy=lambda rng: [
            Case(1, 3, options={"c": 0}),
            *with_owners((4,), 2),
            Case(4, 23, options={"c": 1}),
            Case(crowd(rng), 20, options={"c": 3}),
            Case(3, 7, "bool", numbers="random", options={"c": 1}),
            Case(3, 6, calls=3, options={"c": 0}, later=({"c": 1}, {"c": 2})),
            *hostile(3, 8, options={"c": 1})[2:],
        ],
        special=chunked,
        rules=[rules.no_collectives],
        mistakes=[
            wrong(
                "assumes-owner",
                "It is right for one way of owning chunks only. The argument "
                "`owned` says which chunk is finished here.",
                *({"c": k, "way": w} for k in (0, 1, -1) for w in (1, -1)),
            ),
            wrong(
                "gather-short",
                "On each rank one chunk has not arrived. How many steps does it take "
                "until n − 1 chunks have come by?",
                {"steps": -1},
                {"steps": -1, "way": -1},
            ),
            wrong(
                "wrong-chunk",
                WRONG_CHUNK,
                *(
                    {"next": a, "into": b, "way": w}
                    for w in (1, -1)
                    for a, b in ((-1, 0), (-1, 1), (1, 1))
                ),
            ),
            wrong(
                "adds",
                "What arrives is finished: it replaces what was there.",
                {"gather": add},
                {"gather": add, "way": -1},
            ),
        ],
    )
)


# ---- 04.4 ring_seconds ---------------------------------------------------------------------------


def ring_time(
    n: int,
    nbytes: float,
    alpha: float,
    beta: float,
    steps: Callable[[int], int] = lambda n: 2 * (n - 1),
    parts: Callable[[int], int] = lambda n: n,
    starts: int | None = None,
    inverted: bool = False,
    divide: Callable = truediv,
) -> float:
    """Each of the 2(n − 1) steps takes a latency and the transfer of one chunk."""
    latency = alpha * (steps(n) if starts is None else starts)
    chunk = divide(nbytes, parts(n))
    return latency + steps(n) * (chunk / beta if inverted else chunk * beta)


formula(
    "04.4",
    "ring_seconds",
    ring_time,
    core=lambda rng: [
        (2, 8, 1.0, 1.0),
        (4, 10, 2.0, 0.5),
        (8, 1 << 20, 5e-6, 4e-11),
        *networks(rng),
    ],
    sturdy=lambda rng: [(1, 8, 1.0, 0.5), (4, 0, 1.0, 0.5), (3, 7, 0.0, 0.5), (3, 7, 1.0, 0.0)],
    mistakes=[
        (
            "bandwidth",
            "β is the time that one byte takes, in seconds per byte: what would twice as "
            "large a β mean?",
            {"inverted": True},
        ),
        ("whole-tensor", "A step carries one chunk, not the tensor.", {"parts": lambda n: 1}),
        (
            "latency-once",
            "Every step begins with a message of its own, and each one pays the latency.",
            {"starts": 1},
            {"starts": 2},
        ),
        (
            "transfer-once",
            "Every step carries a chunk, and each one pays for its bytes.",
            {"parts": lambda n: n * 2 * (n - 1) or 1},
        ),
        (
            "two-n",
            "Count the steps for two ranks by hand: it is not four.",
            {"steps": lambda n: 2 * n},
        ),
        (
            "one-phase",
            "That is the time of one half. The sums have to come back, too.",
            {"steps": lambda n: n - 1},
            {"steps": lambda n: n},
        ),
        (
            "rounded-down",
            "// drops the rest of the division. Bytes per chunk may be a fraction "
            "here: it is a formula, and nobody sends it.",
            {"divide": floordiv},
        ),
    ],
)
