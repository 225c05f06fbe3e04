"""Lesson 04: the sum of everybody's tensor, along a ring, and what it costs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from operator import floordiv, truediv
from typing import Any

import torch
from torch import Tensor

from course_check import rules
from course_check.cases import Case, chunked, crowd, hostile, rows, tensor
from course_check.compare import same
from course_check.exercise import Finding, Play
from course_check.harness.seen import Seen
from course_exercises.declare import each, exercise
from course_exercises.formulas import formula, networks, nothing_on_the_way


def name_lengths(case: Case) -> set[str]:
    """torch.chunk, which rounds the size up, may make fewer chunks than there are ranks."""
    fewer = len(torch.empty(case.length).chunk(case.world)) < case.world
    return chunked(case) | ({"fewer chunks"} if fewer else set())


WRONG_BUFFER = (
    "What arrives is never added: each rank adds something of its own again. Which tensor did recv "
    "fill?"
)
WRONG_CHUNK = (
    "What arrives goes into another chunk than its own. Which chunk does the left neighbour send "
    "in this step?"
)
OVERWRITTEN = (
    "What arrives is received into the chunk that it is to be added to: what was in it is gone "
    "before anything can be added."
)

# ---- a ring in one process -----------------------------------------------------------------------

Combine = Callable[[Tensor, Tensor, Tensor], Tensor]  # its own chunk, what came, what it has sent


def add(own: Tensor, came: Tensor, sent: Tensor) -> Tensor:
    return own + came


def replace(own: Tensor, came: Tensor, sent: Tensor) -> Tensor:
    return came


ADDS_ITS_OWN: list[Combine] = [
    lambda own, came, sent: own + sent,
    lambda own, came, sent: own + own,
    lambda own, came, sent: sent,
]
OVERWRITES: list[Combine] = [  # the inbox is the chunk itself
    lambda own, came, sent: came + came,
    lambda own, came, sent: came + sent,
]


def turn_ring(
    chunks: list[list[Tensor]],
    steps: int,
    first: int,
    way: int = 1,
    next: int = -1,
    into: int = -1,
    combine: Combine = replace,
) -> None:
    """In each step every rank sends a chunk, the first time the one ``first`` places after its own
    number, and later the one ``next`` to the last. What came goes into the one ``into`` places
    after that, and ``combine`` says how."""
    n = len(chunks)
    ranks = [by_number[::way] for by_number in chunks[::way]]
    for step in range(steps):
        out = [(rank + first + next * step) % n for rank in range(n)]
        sent = [ranks[rank][out[rank]].clone() for rank in range(n)]
        for rank in range(n):
            own = ranks[rank][(out[rank] + into) % n]
            own.copy_(combine(own, sent[rank - 1], sent[rank]))


def on_any_ring(**knobs: Iterable) -> list[dict[str, Any]]:
    """On rings that go either way round and begin with any chunk."""
    return each(way=(1, -1), first=range(-2, 3), **knobs)


# ---- 04.1 ring_all_reduce ------------------------------------------------------------------------


def run_ring(
    given: list[tuple],
    way: int = 1,
    first: int = 0,
    more_adds: int = 0,
    more_gathers: int = 0,
    gathers_from: int = 1,
    adds: Combine = add,
    gathers: Combine = replace,
    adds_into: int = -1,
    gathers_into: int = -1,
    whole_from: Callable[[int], int] | None = None,
) -> None:
    """The ring step by step: n − 1 steps that add, and n − 1 that hand finished chunks on."""
    if whole_from:
        run_whole_ring(given, way, whole_from)
        return
    n = len(given)
    flat = [t.flatten().clone() for (t,) in given]
    chunks = [list(t.tensor_split(n)) for t in flat]
    steps = (n - 1 + more_adds, max(0, n - 1 + more_gathers)) if n > 1 else (0, 0)
    turn_ring(chunks, steps[0], first, way, into=adds_into, combine=adds)
    turn_ring(chunks, steps[1], first + gathers_from, way, into=gathers_into, combine=gathers)
    for (t,), end in zip(given, flat, strict=True):
        t.copy_(end.view(t.shape))


def run_whole_ring(given: list[tuple], way: int, source: Callable[[int], int]) -> None:
    """A mistake: whole tensors go round, and a step adds that of a rank ``source`` places back."""
    n, before = len(given), [t.clone() for (t,) in given]
    for rank, (t,) in enumerate(given):
        for places in map(source, range(n - 1)):
            t += before[(rank - way * places) % n]


SOURCES = (  # what comes in a step is from step + 1 places back
    lambda step: 0,  # its own; what it has sent; of two that take turns always the one or the other
    lambda step: step,
    lambda step: 2 * ((step + 1) // 2),
    lambda step: 2 * (step // 2) + 1,
)


def ring_core(rng: random.Random) -> list[Case]:
    """Lengths that the number of ranks divides."""
    return [
        *rows("", (2, 2), (3, 6), (4, 4), (3, 3)),
        Case(3, 6, calls=2),
        Case(5, 5 * rng.randrange(4, 50), numbers="random"),
    ]


def check_direction(play: Play) -> Iterator[Finding]:
    """Messages go to one neighbour, on every rank the same one; so they come from the other."""
    world = play.case.world
    for step in (1, -1):
        if all(rules.peers(play, r) <= {(r + step) % world} for r in range(world)):
            return
    rank = next(r for r in range(world) if not rules.peers(play, r) <= {(r + 1) % world})
    mine = ", ".join(map(str, sorted(rules.peers(play, rank))))
    text = f"rank {rank} sends to {mine}; its right neighbour is {(rank + 1) % world}"
    yield Finding("peers", text, rank)


def count_chunk_bytes(play: Play) -> int:
    """Bytes of the largest chunk."""
    return -(-play.case.length // play.case.world) * play.given(0).element_size()


exercise(
    "04.1 ring_all_reduce",
    run_ring,
    inputs=lambda case, rank: (tensor(case, rank),),
    core=ring_core,
    sturdy=lambda rng: [
        *rows("", (1, 3), (2, 0), (2, 1), (3, 2), (3, 5), (4, 2), (4, 5), (crowd(rng), 25)),
        Case(2, 4, layout="transposed"),
        *hostile(3, 8, layouts=(2, 8)),
    ],
    words={
        "fewer chunks": "torch.chunk makes fewer chunks than there are ranks. How many chunks does "
        "chunk(4) make of 5 elements?",
    },
    special=name_lengths,
    rules=[rules.no_collectives],
    budget=[
        check_direction,
        rules.messages_of_at_most(count_chunk_bytes),
        rules.sends_at_most(lambda p: 2 * (p.case.world - 1)),
        rules.bytes_at_most(lambda p: 2 * (p.case.world - 1) * count_chunk_bytes(p)),
        rules.bytes_in_total_at_least(lambda p: 2 * (p.case.world - 1) * p.given(0).nbytes),
    ],
    hints={
        "unfinished": "Some rank is missing in each sum: what goes round in the second half is not "
        "finished. Does the first half add what arrives, in n − 1 steps, and which chunk is "
        "complete on this rank then?",
        "wrong-buffer": WRONG_BUFFER,
        "wrong-chunk": WRONG_CHUNK,
        "added-twice": "Some ranks are in the sum more than once. How many steps does the adding "
        "half take, and does the second half add, too?",
        "gather-short": "The sums are finished, but not all of them have reached every rank. How "
        "many steps does the second half take?",
        "not-gathered": "Each sum is finished on one rank, and has reached no other. What does "
        "the second half do with what it receives?",
        "received-over-own": OVERWRITTEN,
    },
    mistakes={
        "unfinished": on_any_ring(gathers_from=(0, 2))
        + on_any_ring(adds=[replace])
        + on_any_ring(more_adds=[-1], gathers_from=(1, 2)),
        "wrong-buffer": each(way=(1, -1), whole_from=SOURCES)
        + on_any_ring(adds=ADDS_ITS_OWN, gathers_from=(1, 2)),
        "wrong-chunk": on_any_ring(adds_into=(0, 1))
        + on_any_ring(gathers_into=(0, 1))
        + on_any_ring(adds_into=[0], gathers_into=[0]),
        "added-twice": on_any_ring(gathers=[add])
        + on_any_ring(more_adds=[1], gathers_from=[0], more_gathers=(0, -1)),
        "gather-short": on_any_ring(more_gathers=[-1]),
        "not-gathered": on_any_ring(more_gathers=[-99]),
        "received-over-own": on_any_ring(adds=OVERWRITES, gathers_from=(1, 2)),
    },
)


# ---- 04.2 ring_reduce_scatter, 04.3 ring_all_gather ----------------------------------------------


def make_chunks(case: Case, rank: int) -> list[Tensor]:
    """The case's tensor of this rank in n contiguous chunks."""
    return [c.clone() for c in tensor(case, rank).flatten().tensor_split(case.world)]


def run_adding_half(
    given: list[tuple],
    way: int = 1,
    first: int = 0,
    more_adds: int = 0,
    names: int = 0,
    into: int = -1,
    next: int = -1,
    adds: Combine = add,
) -> list[int]:
    """The adding half; returns the number of the chunk that is complete, or ``names`` another."""
    chunks = [args[0] for args in given]
    n = len(chunks)
    turn_ring(chunks, n - 1 + more_adds if n > 1 else 0, first, way, next, into, adds)
    numbers = [(rank + first + 1 + names) % n for rank in range(n)]
    return numbers if way == 1 else [n - 1 - i for i in reversed(numbers)]


def accept_owners(want: list[Seen], got: list[Seen]) -> list[Seen]:
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


def are_owned_twice(play: Play) -> bool:
    """The numbers that are returned are not each rank's own."""
    whole = play.done and all(type(number) is int for number in play.returned)
    return whole and {*play.returned} != {*play.ranks}


exercise(
    "04.2 ring_reduce_scatter",
    run_adding_half,
    inputs=lambda case, rank: (make_chunks(case, rank),),
    core=ring_core,
    sturdy=lambda rng: [
        *rows("", (1, 3), (2, 0), (2, 1), (3, 2), (3, 5), (4, 2), (4, 5), (crowd(rng), 25)),
        *hostile(3, 8)[2:],
    ],
    special=chunked,
    settle=accept_owners,
    rules=[rules.no_collectives],
    hints={
        "owners": "Each rank finishes its own chunk, 0 to n − 1. Two name the same one here, or "
        "one names a chunk that does not exist.",
        "nothing-added": "What arrives takes the place of what was there: nothing is added.",
        "wrong-buffer": WRONG_BUFFER,
        "wrong-chunk": WRONG_CHUNK,
        "received-over-own": OVERWRITTEN,
        "same-chunk": "In every step a rank sends the same chunk again. What it has just added up "
        "is what the next rank needs.",
        "wrong-index": "One chunk is complete on each rank, and another one's number is returned. "
        "Follow the last message: which chunk did it carry?",
        "miscounted": "In the chunk that is returned some rank is missing, or is there twice. How "
        "many links does a chunk pass to meet every rank once?",
    },
    mistakes={
        "nothing-added": on_any_ring(adds=[replace], names=(0, 1, -1)),
        "wrong-buffer": on_any_ring(adds=ADDS_ITS_OWN[:2]),
        "wrong-chunk": on_any_ring(into=(0, 1), names=(0, 1, -1))
        + on_any_ring(into=[1], next=[1], names=(0, -1)),
        "same-chunk": on_any_ring(next=[0], names=(0, 1, -1, -2)),
        "received-over-own": on_any_ring(adds=OVERWRITES, names=(0, 1, -1)),
        "wrong-index": on_any_ring(names=(1, -1, 2, -2)),
        "miscounted": on_any_ring(more_adds=(1, -1), names=(0, 1, -1)),
    },
    diagnoses={"owners": are_owned_twice},
)


def make_finished(case: Case, rank: int) -> tuple[list[Tensor], int]:
    """Chunks of which number (rank + c) mod n is finished; in the others something is left over."""
    owned = (rank + case.options["c"]) % case.world
    whole = make_chunks(case, 0)
    return [c if i == owned else torch.full_like(c, 3) for i, c in enumerate(whole)], owned


def run_gathering_half(
    given: list[tuple],
    more_steps: int = 0,
    assumed: int | None = None,
    way: int = 1,
    next: int = -1,
    into: int = -1,
    combine: Combine = replace,
) -> None:
    """Every rank has every chunk as its owner had it; by turns, so that a turn can be left out."""
    chunks, n = [args[0] for args in given], len(given)
    owned = given[0][1] if way == 1 else -given[-1][1] - 1
    first = owned if assumed is None else assumed
    turn_ring(chunks, max(0, n - 1 + more_steps), first, way, next, into, combine)


exercise(
    "04.3 ring_all_gather",
    run_gathering_half,
    inputs=make_finished,
    core=lambda rng: [
        *rows("c", (2, 2, 0), (2, 2, 1), (3, 3, 0), (3, 3, 1), (3, 3, 2), (4, 4, 3)),
        *rows("c", (5, 5 * rng.randrange(4, 50), rng.randrange(5)), numbers="random"),
    ],
    sturdy=lambda rng: [
        *rows("c", (1, 3, 0), (4, 2, 0), (4, 2, 1), (4, 2, 2), (4, 23, 1), (crowd(rng), 20, 3)),
        *rows("c", (3, 7, 1), dtype="bool", numbers="random"),
        *rows("c", (3, 6, 0), calls=3, later=({"c": 1}, {"c": 2})),
        *hostile(3, 8, options={"c": 1})[2:],
    ],
    special=chunked,
    rules=[rules.no_collectives],
    hints={
        "assumes-owner": "It is right for one way of owning chunks only. The argument `owned` "
        "says which chunk is finished here.",
        "gather-short": "On each rank one chunk has not arrived. How many steps does it take "
        "until n − 1 chunks have come by?",
        "wrong-chunk": WRONG_CHUNK,
        "adds": "What arrives is finished: it replaces what was there.",
    },
    mistakes={
        "assumes-owner": each(assumed=(0, 1, -1), way=(1, -1)),
        "gather-short": each(more_steps=[-1], way=(1, -1)),
        "wrong-chunk": each(into=(0, 1), way=(1, -1)) + each(next=[1], into=[1], way=(1, -1)),
        "adds": each(combine=[add], way=(1, -1)),
    },
)


# ---- 04.4 ring_seconds ---------------------------------------------------------------------------


def time_ring(
    n: int,
    nbytes: float,
    alpha: float,
    beta: float,
    steps: Callable[[int], int] = lambda n: 2 * (n - 1),
    parts: Callable[[int], int] = lambda n: n,
    beta_is_bandwidth: bool = False,
    divide: Callable = truediv,
) -> float:
    """Each of the 2(n − 1) steps takes a latency and the transfer of one chunk."""
    chunk = divide(nbytes, parts(n))
    return steps(n) * (alpha + (chunk / beta if beta_is_bandwidth else chunk * beta))


formula(
    "04.4 ring_seconds",
    time_ring,
    core=lambda rng: [
        (2, 8, 1.0, 1.0),
        (4, 10, 2.0, 0.5),
        (8, 1 << 20, 5e-6, 4e-11),
        *networks(rng),
    ],
    sturdy=nothing_on_the_way,
    hints={
        "bandwidth": "β is the time that one byte takes. Does a message take more time or less "
        "when β grows?",
        "whole-tensor": "A step carries one chunk, not the tensor.",
        "two-n": "Count the steps for two ranks by hand: it is not four.",
        "one-phase": "That is the time of one half. The sums have to come back, too.",
        "rounded-down": "// drops the rest of the division. In this formula the bytes of a chunk "
        "may be a fraction: nobody sends them.",
    },
    mistakes={
        "bandwidth": {"beta_is_bandwidth": True},
        "whole-tensor": {"parts": lambda n: 1},
        "two-n": {"steps": lambda n: 2 * n},
        "one-phase": [{"steps": lambda n: n - 1}, {"steps": lambda n: n}],
        "rounded-down": {"divide": floordiv},
    },
)
