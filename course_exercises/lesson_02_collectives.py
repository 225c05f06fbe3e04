"""Lesson 02: broadcast, gather, reduce, all_gather, reduce_scatter; send and receive alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.checks.cases import Case, cases, crowd, divides, hostile, rows, tensor
from course_lib.checks.compare import ANYTHING, same
from course_lib.checks.diagnose import UNTOUCHED, found
from course_lib.checks.exercise import Diagnosis, Exercise, Play, declare, turned
from course_lib.checks.rules import (
    bytes_at_most,
    bytes_in_total_at_least,
    no_collectives,
    receives_at_most,
)


def worlds_and_lengths(case: Case) -> set[str]:
    """What is special about them where tensors travel whole."""
    marks = {"empty": case.length == 0, "no power of two": case.world & (case.world - 1) > 0}
    return {name for name, there in marks.items() if there}


def rooted_core(word: str) -> Callable[[random.Random], list[Case]]:
    def core(rng: random.Random) -> list[Case]:
        plain = (2, 1, 0), (2, 3, 1), (3, 2, 2), (4, 2, 0), (4, 2, 1), (5, 2, 0), (5, 2, 3)
        drawn = 5, rng.randrange(9, 300), rng.randrange(5)
        again = rows(word, (3, 2, 1), numbers="random", calls=2, later=({word: 0},))
        return [*rows(word, *plain), *rows(word, drawn, numbers="random"), *again]

    return core


def rooted_sturdy(word: str) -> Callable[[random.Random], list[Case]]:
    """Of mixed layouts rank 1 has the odd one, and is one that receives."""
    root = {"src": 2, "dst": 1}[word]
    roots = tuple({word: root} for root in (2, 0, 0, 2))
    return lambda rng: [
        *rows(word, (1, 2, 0), (3, 0, 1), (crowd(rng), 2, 3)),
        *hostile(3, 6, options={word: root}),
        *rows(word, (5, 2, 2), jitter=20.0, calls=5, later=roots),
    ]


# ---- 02.1 my_broadcast ---------------------------------------------------------------------------


def told(given: list[tuple], adds: bool = False) -> None:
    """Every rank has what src has. The rest are mistakes."""
    src = given[0][1]
    for rank, (t, _) in enumerate(given):
        if rank != src:
            t.copy_(t + given[src][0] if adds else given[src][0])


wrong = turned(told)
declare(
    Exercise(
        "02.1",
        "my_broadcast",
        told,
        inputs=lambda case, rank: (tensor(case, rank), case.options["src"]),
        core=rooted_core("src"),
        sturdy=rooted_sturdy("src"),
        special=worlds_and_lengths,
        rules=[no_collectives],
        mistakes=[
            wrong(
                "adds",
                "What arrives is added to what the rank had. src's tensor is to take its place.",
                adds=True,
            ),
        ],
    )
)

# ---- 02.2 my_gather ------------------------------------------------------------------------------


def collected(
    given: list[tuple],
    own: Callable[[list, int], list] = lambda rows, rank: rows,
    root: int | None = None,
) -> list:
    """dst, or every rank, has a list of all tensors. The rest are mistakes."""
    rows, (_, *dst) = [t.clone() for t, *_ in given], given[0]
    dst = dst if root is None else [root]
    return [own(rows, r) if dst in ([], [r]) else None for r in range(len(given))]


def left_out(rows: list, rank: int) -> list:
    return rows[:rank] + rows[rank + 1 :]


def something_else(rows: list, rank: int) -> list:
    return [*rows[:rank], ANYTHING, *rows[rank + 1 :]]


def misplaced(play: Play) -> bool:
    """In every list that is returned and wrong, another rank's tensor stands in a wrong place."""
    if not play.done or found("shared")(play):
        return False
    given = [args[0] for args in play.inputs[0]]
    lists = [(r, s.returned) for r, s in enumerate(play.seen[0]) if isinstance(s.returned, list)]
    wrong = [(rank, got) for rank, got in lists if not same(got, given)]

    def strays(rank: int, got: list) -> bool:
        return len(got) == len(given) and any(
            same(entry, t) and not same(entry, given[place])
            for place, entry in enumerate(got)
            for t in left_out(given, rank)
        )

    return play.case.length > 0 < len(wrong) and all(strays(*one) for one in wrong)


def same_again(play: Play) -> bool:
    """In every list that is returned, all entries but the rank's own are one neighbour's tensor."""
    given, n = [args[0] for args in play.inputs[0]], play.case.world
    lists = [seen.returned for seen in play.seen[0]] if play.done else []

    def repeats(rank: int, got: Any) -> bool:
        rest = got[:rank] + got[rank + 1 :] if isinstance(got, list) and len(got) == n else []
        near = given[(rank - 1) % n], given[(rank + 1) % n]
        return len(rest) > 1 and any(all(same(e, t) for e in rest) for t in near)

    return play.case.length > 0 < len(lists) and all(map(repeats, range(n), lists))


def returned_elsewhere(play: Play) -> bool:
    """dst returns a list, and some other rank returns something as well."""
    if not play.done:
        return False
    returned = [seen.returned for seen in play.seen[0]]
    own = returned.pop(play.case.options["dst"])
    return isinstance(own, list) and any(value is not None for value in returned)


OWN_MISSING = (
    "own-missing",
    "The others' tensors are all there, and a rank's own is not, or "
    "something else stands in its place. It needs no message to get into the list.",
    {"own": left_out},
    {"own": something_else},
)
MISPLACED = Diagnosis(
    "misplaced",
    "Entry r of the list should be rank r's tensor, and some entry is another rank's. "
    "Whose tensor goes into each place? If tensors travel in steps, whose arrives when?",
    misplaced,
)

wrong = turned(collected)
declare(
    Exercise(
        "02.2",
        "my_gather",
        collected,
        inputs=lambda case, rank: (tensor(case, rank), case.options["dst"]),
        core=rooted_core("dst"),
        sturdy=rooted_sturdy("dst"),
        special=worlds_and_lengths,
        rules=[no_collectives],
        mistakes=[
            wrong(*OWN_MISSING),
            wrong(
                "other-root",
                "The list is on rank 0, and not on dst. Which line takes rank 0 for the root?",
                root=0,
            ),
        ],
        diagnoses=[
            Diagnosis(
                "list-everywhere",
                "Ranks other than dst return something, too. What does the stub promise there?",
                returned_elsewhere,
            ),
            MISPLACED,
        ],
    )
)

# ---- 02.3 my_reduce ------------------------------------------------------------------------------

REDUCERS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda rows: rows.sum(0),
    "prod": lambda rows: rows.prod(0),
    "max": lambda rows: rows.amax(0),
    "min": lambda rows: rows.amin(0),
}


def combine(op: str, rows: Sequence[Tensor]) -> Tensor:
    """The reduction in one process, exact, in the dtype of the rows."""
    wide = torch.float64 if rows[0].is_floating_point() else torch.int64
    return REDUCERS[op](torch.stack([row.to(wide) for row in rows])).to(rows[0].dtype)


def operand(case: Case, rank: int) -> Tensor:
    """For a product or the largest or smallest, numbers that differ from rank to rank, all on one
    side of 0: with a 0 among them the result would be 0. Rank 0's own number is no result."""
    filled = tensor(case, rank)
    if (op := case.options["op"]) == "sum":
        return filled
    sign, most = -1 if op == "max" else 1, max(case.world, 5)
    place = (rank + case.world // 2) % case.world
    numbers = [sign * ((place + i) % most + 2) for i in range(case.length)]
    return filled.copy_(torch.tensor(numbers).reshape(filled.shape))


def reduced(
    given: list[tuple],
    op: Callable[[str], str] = lambda op: op,
    rows: Callable[[list[Tensor], int], list[Tensor]] = lambda rows, dst: rows,
) -> None:
    """dst has the reduction of all, nobody else's tensor has changed. The rest are mistakes."""
    _, dst, asked = given[0]
    given[dst][0].copy_(combine(op(asked), rows([t.clone() for t, *_ in given], dst)))


def reduce_core(rng: random.Random) -> list[Case]:
    rows = (
        ("sum", 2, 1, 0),
        ("sum", 4, 2, 0),
        ("sum", 4, 2, 1),
        ("sum", 5, 2, 0),
        ("prod", 2, 3, 1),
        ("prod", 4, 3, 0),
        ("max", 4, 1, 0),
        ("max", 3, 3, 1),
        ("min", 4, 3, 0),
        ("min", 5, 2, 2),
    )
    return [
        *(Case(w, n, options={"dst": dst, "op": op}) for op, w, n, dst in rows),
        Case(4, rng.randrange(9, 300), numbers="random", options={"dst": 0, "op": "sum"}),
    ]


wrong = turned(reduced)
declare(
    Exercise(
        "02.3",
        "my_reduce",
        reduced,
        inputs=lambda case, rank: (operand(case, rank), case.options["dst"], case.options["op"]),
        core=reduce_core,
        sturdy=lambda rng: [
            Case(1, 2, options={"dst": 0, "op": "prod"}),
            Case(3, 0, options={"dst": 1, "op": "max"}),
            Case(crowd(rng), 2, options={"dst": 3, "op": rng.choice(["sum", "max", "min"])}),
            Case(5, 3, "int32", numbers="random", options={"dst": 1, "op": "min"}),
            *hostile(3, 6, options={"dst": 1, "op": "sum"}),
        ],
        special=worlds_and_lengths,
        rules=[no_collectives],
        mistakes=[
            wrong(
                "other-op",
                "The result is that of another operation than the one that `op` names.",
                *({"op": lambda op, k=k: k} for k in REDUCERS),
                *(
                    {"op": lambda op, k=k: k.get(op, op)}
                    for k in ({"max": "min", "min": "max"}, {"prod": "sum"})
                ),
            ),
            wrong(
                "root-twice",
                "dst's own tensor is in the result twice.",
                rows=lambda rows, dst: [*rows, rows[dst]],
            ),
            wrong(
                "received-over-own",
                "dst receives into its own tensor, or into the one that holds "
                "the result so far: what was in it is gone.",
                *(
                    {"rows": lambda rows, dst, k=k, at=at: [left_out(rows, dst)[at]] * k}
                    for k in (1, 2)
                    for at in (0, -1)
                ),
            ),
            wrong(
                "starts-from-0",
                "It is as if one more rank had taken part, with zeros. What does a "
                "0 do to a product, or to the largest of negative numbers?",
                rows=lambda rows, dst: [*rows, torch.zeros_like(rows[0])],
            ),
            wrong(
                "one-lost",
                "The result lacks the numbers of one rank. What became of them?",
                *(
                    {"rows": lambda rows, dst, k=k: left_out(rows, (dst + k) % len(rows))}
                    for k in (0, 1, -1)
                ),
            ),
            UNTOUCHED,  # for some operators only, too: += writes in place, torch.maximum does not
        ],
    )
)

# ---- 02.4 my_all_gather --------------------------------------------------------------------------

declare(
    Exercise(
        "02.4",
        "my_all_gather",
        collected,
        inputs=lambda case, rank: (tensor(case, rank),),
        core=lambda rng: [
            *cases((2, 3), (1, 2)),
            *cases((4, 5), (2,)),
            Case(5, rng.randrange(9, 300), numbers="random"),
            Case(3, 4, numbers="random", calls=2),
        ],
        sturdy=lambda rng: [
            Case(1, 2),
            Case(3, 0),
            Case(8, 2),
            Case(crowd(rng), 2),
            *hostile(3, 6),
        ],
        special=worlds_and_lengths,
        rules=[no_collectives],
        diagnoses=[
            Diagnosis(
                "same-again",
                "Every other entry of a rank's list is the same neighbour's "
                "tensor: in each step that one has sent its own again. What should it pass on?",
                same_again,
            ),
            MISPLACED,
        ],
        mistakes=[turned(collected)(*OWN_MISSING)],
    )
)

# ---- 02.5 my_reduce_scatter ----------------------------------------------------------------------


def scattered(
    given: list[tuple],
    of: Callable[[int, int], int] = lambda rank, n: rank,
    add: bool = True,
    whole: bool = False,
    sent: bool = False,
    own: bool = True,
) -> list:
    """Of the sum every rank has its own block. The rest are mistakes."""
    n, total = len(given), combine("sum", [t for (t,) in given])
    if not own:
        return [(total - t).tensor_split(n)[r] for r, (t,) in enumerate(given)]
    if sent:
        return [combine("sum", [given[r][0].tensor_split(n)[r] for r in range(n)]) for _ in given]
    return [
        total if whole else (total if add else given[r][0]).tensor_split(n)[of(r, n)].clone()
        for r in range(n)
    ]


def block_bytes(play: Play) -> int:
    return play.given(0).nbytes // play.case.world


wrong = turned(scattered)
declare(
    Exercise(
        "02.5",
        "my_reduce_scatter",
        scattered,
        inputs=lambda case, rank: (tensor(case, rank),),
        core=lambda rng: [
            *(Case(w, n) for w, n in ((2, 2), (2, 4), (3, 3), (3, 6), (4, 8), (5, 5))),
            Case(5, 5 * rng.randrange(3, 60), numbers="random"),
            Case(3, 6, numbers="random", calls=2),
        ],
        sturdy=lambda rng: [
            Case(1, 2),
            Case(3, 0),
            Case(8, 16),
            (lambda w: Case(w, 2 * w))(crowd(rng)),
            Case(4, 8, jitter=20.0, calls=8),
            Case(2, 8, layout="transposed"),
            *(c for c in hostile(2, 8) if c.layout != "scalar"),
        ],
        special=worlds_and_lengths,
        fits=divides,
        rules=[no_collectives],
        budget=[
            bytes_at_most(lambda p: (p.case.world - 1) * block_bytes(p)),
            receives_at_most(lambda p: (p.case.world - 1) * block_bytes(p)),
            bytes_in_total_at_least(lambda p: (p.case.world - 1) * p.given(0).nbytes),
        ],
        mistakes=[
            wrong(
                "input-block",
                "Each rank returns a part of its own tensor, to which nothing has been added.",
                add=False,
            ),
            wrong(
                "own-missing",
                "Each rank has the sum of what the others have sent. Its own tensor "
                "has a block for it, too.",
                own=False,
            ),
            wrong(
                "own-block-sent", "Rank r needs block r from all, not each sender's own.", sent=True
            ),
            wrong(
                "whole-sum", "The whole sum comes back. A rank keeps one block of it.", whole=True
            ),
            wrong(
                "wrong-block",
                "Each rank returns a finished block of the sum, and not the one that "
                "has its own number.",
                *({"of": lambda rank, n, k=k: (rank + k) % n} for k in (1, -1, 2)),
                {"of": lambda rank, n: n - 1 - rank},
                {"of": lambda rank, n: 0},
            ),
        ],
    )
)
