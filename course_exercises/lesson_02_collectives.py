"""Lesson 02: broadcast, gather, reduce, all_gather, reduce_scatter; send and receive alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course_check import rules
from course_check.cases import Case, crowd, hostile, rows, tensor
from course_check.compare import same
from course_check.exercise import Play
from course_check.usual_diagnoses import UNTOUCHED, found
from course_exercises import whole_tensors
from course_exercises.declare import exercise

# ---- 02.1 my_broadcast ---------------------------------------------------------------------------


def broadcast(given: list[tuple], adds: bool = False) -> None:
    """Every rank has what src has. The rest are mistakes."""
    src = given[0][1]
    for rank, (t, _) in enumerate(given):
        if rank != src:
            t.copy_(t + given[src][0] if adds else given[src][0])


exercise(
    "02.1 my_broadcast",
    broadcast,
    inputs=lambda case, rank: (tensor(case, rank), case.options["src"]),
    core=whole_tensors.rooted_core("src"),
    sturdy=whole_tensors.rooted_sturdy("src"),
    special=whole_tensors.worlds_and_lengths,
    rules=[rules.no_collectives],
    hints={"adds": "What arrives is added to what the rank had. A broadcast replaces it."},
    mistakes={"adds": {"adds": True}},
)

# ---- 02.2 my_gather ------------------------------------------------------------------------------


def gather(
    given: list[tuple],
    own: Callable[[list, int], list] = lambda tensors, rank: tensors,
    root: int | None = None,
) -> list:
    """dst, or every rank where there is none, has a list of all tensors. The rest are mistakes."""
    tensors, (_, *dst) = [t.clone() for t, *_ in given], given[0]
    roots = range(len(given)) if not dst else dst if root is None else [root]
    return [own(tensors, rank) if rank in roots else None for rank in range(len(given))]


def is_misplaced(play: Play) -> bool:
    """In every list that is returned and wrong, another rank's tensor stands in a wrong place."""
    given = [args[0] for args in play.inputs[0]]
    lists = [(r, got) for r, got in enumerate(play.returned) if isinstance(got, list)]
    wrong = [(rank, got) for rank, got in lists if not same(got, given)]

    def strays(rank: int, got: list) -> bool:
        pairs = zip(got, given, strict=False)
        strange = [entry for entry, right in pairs if not same(entry, right)]
        others = whole_tensors.left_out(given, rank)
        return len(got) == len(given) and any(same(e, t) for e in strange for t in others)

    there = play.case.length > 0 < len(wrong) and not found("shared")(play)
    return there and all(strays(*one) for one in wrong)


def repeats_one(play: Play) -> bool:
    """In every list that is returned, all entries but the rank's own are one neighbour's tensor."""
    given, n = [args[0] for args in play.inputs[0]], play.case.world

    def repeats(rank: int, got: Any) -> bool:
        rest = got[:rank] + got[rank + 1 :] if isinstance(got, list) and len(got) == n else []
        near = given[(rank - 1) % n], given[(rank + 1) % n]
        return len(rest) > 1 and any(all(same(e, t) for e in rest) for t in near)

    return play.done and play.case.length > 0 and all(map(repeats, play.ranks, play.returned))


def returns_elsewhere(play: Play) -> bool:
    """dst returns a list, and some other rank returns something as well."""
    others = play.returned
    own = others.pop(play.case.options["dst"]) if others else None
    return isinstance(own, list) and any(value is not None for value in others)


MISPLACED = (
    "Entry r of the list should be rank r's tensor, and some entry is another rank's. Whose tensor "
    "goes into each place? If tensors travel in steps, whose arrives when?"
)

exercise(
    "02.2 my_gather",
    gather,
    inputs=lambda case, rank: (tensor(case, rank), case.options["dst"]),
    core=whole_tensors.rooted_core("dst"),
    sturdy=whole_tensors.rooted_sturdy("dst"),
    special=whole_tensors.worlds_and_lengths,
    rules=[rules.no_collectives],
    hints={
        "own-missing": whole_tensors.OWN_MISSING,
        "other-root": "The list is on rank 0, and not on dst. Which line takes rank 0 for the "
        "root?",
        "list-everywhere": "Ranks other than dst return something, too. What does the stub "
        "promise there?",
        "misplaced": MISPLACED,
    },
    mistakes={"own-missing": whole_tensors.WITHOUT_OWN, "other-root": {"root": 0}},
    diagnoses={"list-everywhere": returns_elsewhere, "misplaced": is_misplaced},
)

# ---- 02.3 my_reduce ------------------------------------------------------------------------------

REDUCERS: Any = {"sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin}


def combine(op: str, rows: Sequence[Tensor]) -> Tensor:
    """The reduction in one process, exact, in the dtype of the rows."""
    wide = torch.float64 if rows[0].is_floating_point() else torch.int64
    return REDUCERS[op](torch.stack([row.to(wide) for row in rows]), 0).to(rows[0].dtype)


def make_operand(case: Case, rank: int) -> Tensor:
    """For a product or the largest or smallest, numbers that differ from rank to rank, all on one
    side of 0: with a 0 among them the result would be 0. Rank 0's own number is no result."""
    filled = tensor(case, rank)
    if (op := case.options["op"]) == "sum":
        return filled
    sign, most = -1 if op == "max" else 1, max(case.world, 5)
    place = (rank + case.world // 2) % case.world
    numbers = [sign * ((place + i) % most + 2) for i in range(case.length)]
    return filled.copy_(torch.tensor(numbers).reshape(filled.shape))


def reduce_to_root(
    given: list[tuple],
    taken_for: dict[str, str] | None = None,
    operands: Callable[[list[Tensor], int], list[Tensor]] = lambda tensors, dst: tensors,
) -> None:
    """dst has the reduction of all, nobody else's tensor has changed. The rest are mistakes."""
    _, dst, op = given[0]
    op = (taken_for or {}).get(op, op)
    given[dst][0].copy_(combine(op, operands([t.clone() for t, *_ in given], dst)))


def keep_received(tensors: list[Tensor], dst: int, which: int, times: int) -> list[Tensor]:
    """The first or last tensor that has come, in place of dst's own, or of all."""
    return [whole_tensors.left_out(tensors, dst)[which]] * times


def lose_one(tensors: list[Tensor], dst: int, distance: int) -> list[Tensor]:
    """The tensors of all ranks but one."""
    return whole_tensors.left_out(tensors, (dst + distance) % len(tensors))


exercise(
    "02.3 my_reduce",
    reduce_to_root,
    inputs=lambda case, rank: (make_operand(case, rank), case.options["dst"], case.options["op"]),
    core=lambda rng: [
        *rows("dst op", (2, 1, 0, "sum"), (3, 1, 0, "sum"), (4, 2, 1, "sum")),
        *rows("dst op", (4, 1, 0, "max"), (3, 3, 1, "max"), (2, 1, 0, "prod"), (4, 3, 1, "prod")),
        *rows("dst op", (4, 3, 0, "min"), (5, 2, 2, "min")),
        *rows("dst op", (4, 1, 0, "sum"), (4, rng.randrange(9, 300), 0, "sum"), numbers="random"),
    ],
    sturdy=lambda rng: [
        *rows("dst op", (1, 2, 0, "prod"), (3, 0, 1, "max")),
        *rows("dst op", (crowd(rng), 2, 3, rng.choice(["sum", "max", "min"]))),
        *rows("dst op", (5, 3, 1, "min"), dtype="int32", numbers="random"),
        *hostile(3, 6, layouts=(2, 4), options={"dst": 0, "op": "sum"}),
    ],
    special=whole_tensors.worlds_and_lengths,
    rules=[rules.no_collectives],
    hints={
        "other-op": "The result is that of another operation than the one that `op` names.",
        "root-twice": "dst's own tensor is in the result twice.",
        "received-over-own": "dst receives into its own tensor, or into the one that holds the "
        "result so far: what was in it is gone.",
        "starts-from-0": "It is as if one more rank had taken part, with zeros. What does a 0 do "
        "to a product, or to the largest of negative numbers?",
        "one-lost": "The result lacks the numbers of one rank. What became of them?",
        UNTOUCHED.id: UNTOUCHED.hint,
    },
    mistakes={
        "other-op": [
            *({"taken_for": dict.fromkeys(REDUCERS, op)} for op in REDUCERS),
            {"taken_for": {"max": "min", "min": "max"}},
            {"taken_for": {"prod": "sum"}},
        ],
        "root-twice": {"operands": lambda tensors, dst: [*tensors, tensors[dst]]},
        "received-over-own": [
            {"operands": partial(keep_received, which=which, times=times)}
            for times in (1, 2)
            for which in (0, -1)
        ],
        "starts-from-0": {
            "operands": lambda tensors, dst: [*tensors, torch.zeros_like(tensors[0])]
        },
        "one-lost": [{"operands": partial(lose_one, distance=k)} for k in (0, 1, -1)],
        UNTOUCHED.id: UNTOUCHED,  # for some operators only: += writes in place, maximum does not
    },
)

# ---- 02.4 my_all_gather --------------------------------------------------------------------------

exercise(
    "02.4 my_all_gather",
    gather,
    inputs=lambda case, rank: (tensor(case, rank),),
    core=lambda rng: [
        *rows("", (2, 1), (2, 2), (3, 1), (3, 2), (4, 2), (5, 2)),
        Case(5, rng.randrange(9, 300), numbers="random"),
        Case(3, 4, numbers="random", calls=2),
    ],
    sturdy=lambda rng: [
        *rows("", (1, 1), (3, 0), (8, 2), (crowd(rng), 2)),
        *hostile(3, 6, layouts=(2, 4)),
    ],
    special=whole_tensors.worlds_and_lengths,
    rules=[rules.no_collectives],
    hints={
        "own-missing": whole_tensors.OWN_MISSING,
        "same-again": "All entries of a rank's list but its own are one neighbour's tensor: in "
        "each step the neighbour has sent its own again. What should it pass on?",
        "misplaced": MISPLACED,
    },
    mistakes={"own-missing": whole_tensors.WITHOUT_OWN},
    diagnoses={"same-again": repeats_one, "misplaced": is_misplaced},
)

# ---- 02.5 my_reduce_scatter ----------------------------------------------------------------------


def reduce_and_scatter(
    given: list[tuple],
    of: Callable[[list, int], list] = lambda blocks, rank: blocks,
    which: Callable[[int, int, int], int] = lambda rank, sender, n: rank,
    whole: bool = False,
) -> list:
    """Every rank has the sum of everybody's block for it. The rest are mistakes."""
    n = len(given)
    cut = [t.tensor_split(1 if whole else n) for (t,) in given]
    sums = []
    for rank in range(n):
        sent = [blocks[0 if whole else which(rank, k, n)] for k, blocks in enumerate(cut)]
        sums.append(combine("sum", of(sent, rank)))
    return sums


def block_bytes(play: Play) -> int:
    """Bytes of one block of the input."""
    return play.given(0).nbytes // play.case.world


exercise(
    "02.5 my_reduce_scatter",
    reduce_and_scatter,
    inputs=lambda case, rank: (tensor(case, rank),),
    core=lambda rng: [
        *rows("", (2, 2), (2, 4), (3, 3), (3, 6), (4, 4), (5, 5)),
        Case(5, 5 * rng.randrange(3, 60), numbers="random"),
        Case(3, 6, numbers="random", calls=2),
    ],
    sturdy=lambda rng: [
        *rows("", (1, 1), (3, 0), (8, 16), (many := crowd(rng), 2 * many)),
        Case(4, 8, jitter=20.0, calls=8),
        Case(2, 8, layout="transposed"),
        *(c for c in hostile(2, 8) if c.layout != "scalar"),
    ],
    special=whole_tensors.worlds_and_lengths,
    rules=[rules.no_collectives],
    budget=[
        rules.bytes_at_most(lambda p: (p.case.world - 1) * block_bytes(p)),
        rules.receives_at_most(lambda p: (p.case.world - 1) * block_bytes(p)),
        rules.bytes_in_total_at_least(lambda p: (p.case.world - 1) * p.given(0).nbytes),
    ],
    hints={
        "input-block": "Each rank returns a part of its own tensor, to which nothing has been "
        "added.",
        "own-missing": "Each rank has the sum of what the others have sent. Its own tensor has a "
        "block for it, too.",
        "own-block-sent": "Rank r needs block r of every tensor, and gets the block with the "
        "sender's number.",
        "whole-sum": "The whole sum comes back. A rank keeps one block of it.",
        "wrong-block": "Each rank returns a finished block of the sum, and not the one that has "
        "its own number.",
    },
    mistakes={
        "input-block": {"of": lambda blocks, rank: [blocks[rank]]},
        "own-missing": {"of": whole_tensors.left_out},
        "own-block-sent": {"which": lambda rank, sender, n: sender},
        "whole-sum": {"whole": True},
        "wrong-block": [
            {"which": lambda rank, sender, n: (rank + 1) % n},
            {"which": lambda rank, sender, n: rank - 1},
            {"which": lambda rank, sender, n: (rank + 2) % n},
            {"which": lambda rank, sender, n: n - 1 - rank},
            {"which": lambda rank, sender, n: 0},
        ],
    },
)
