"""Lesson 08: groups of a grid's rows and columns; everybody to everybody; a transpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from course_exercises.lesson_02_collectives import OWN_MISSING
from course_lib.beside.in_rank import group_of
from course_lib.checks.cases import Case, cases, crowd, hostile, lay_out, rows, tensor
from course_lib.checks.diagnoses import found, only, says
from course_lib.checks.exercise import Diagnosis, Exercise, Finding, Play, declare, turned
from course_lib.checks.rules import bytes_at_most, bytes_in_total_at_least, sends_at_most, trace_of

LENGTHS = "In the table of lengths, what a rank sends is its row. What does it receive?"

# ---- 08.1 grid_groups ----------------------------------------------------------------------------


def grid(
    given: list[tuple],
    flipped: bool = False,
    down: bool = False,
    lost: tuple[int, ...] = (),
    short: tuple[int, ...] = (),
    least: int = 1,
) -> list:
    """Each rank's row and column of a grid that is filled row by row. The rest are mistakes."""
    rows, cols = given[0]
    wide, out = rows if down else cols, []
    for rank in range(rows * cols):
        row = range(rank // wide * wide, rank // wide * wide + wide)
        column = range(rank % wide, rows * cols, wide)
        pair = [
            None
            if len(r) < least
            or (k in lost and r[-1] == rows * cols - 1)
            or (k in short and r[-1] == rank)
            else group_of(r[:-1] if k in short else r)
            for k, r in enumerate((row, column))
        ]
        out.append(tuple(pair[::-1] if flipped or down else pair))
    return out


def made(play: Play) -> Iterator[Finding]:
    there = {group_of(ranks) for ranks in trace_of(play).groups.values()}
    for rank, want in enumerate(play.expected[0]):
        for which, group in zip(("row", "column"), want.returned, strict=True):
            if group not in there:
                yield Finding("not made", f"the group of the {which} has not been made", rank)


def grids(*shapes: tuple[int, int]) -> list[Case]:
    return [Case(r * c, options={"rows": r, "cols": c}) for r, c in shapes]


TOO_SHORT = "too-short", "A group lacks ranks. Does each range reach the last rank that it should?"
wrong = turned(grid)
declare(
    Exercise(
        "08.1",
        "grid_groups",
        grid,
        inputs=lambda case, rank: tuple(case.options.values()),
        core=lambda rng: grids((1, 2), (2, 1), (2, 2), (1, 3), (2, 3), (3, 2)),
        sturdy=lambda rng: grids((1, 1), (1, 5), (4, 1), (3, 4), (rng.randrange(4, 6), 4)),
        words={
            "uneven sides": ("the grid is not square", "Which lines mean rows, and which columns?")
        },
        special=lambda case: {"uneven sides"} if len({*case.options.values()}) > 1 else set(),
        blank=False,
        length_is="",
        rules=[made],
        mistakes=[
            wrong("swapped", "Row and column have changed places.", flipped=True),
            wrong(
                "down-first",
                "The grid is filled column by column. Ranks count along a row first: "
                "rank 1 is to the right of rank 0.",
                down=True,
            ),
            wrong(
                "last-missing",
                "Ranks in the last row or column have no group. How many rows and "
                "columns are there to make?",
                {"lost": (0,)},
                {"lost": (1,)},
                {"lost": (0, 1)},
            ),
            wrong(*TOO_SHORT, {"short": (0,)}, {"short": (1,)}, {"short": (0, 1)}),
            wrong(
                "alone", "A group of one rank is a group, too, and here it is left out.", least=2
            ),
        ],
        diagnoses=[
            Diagnosis(
                "not-together",
                "The ranks do not make the same groups in the same order. Every "
                "rank calls new_group for every group, also for those that it is not in.",
                lambda p: found("Mismatch", "Deadlock")(p) and "new_group" in str(p.error),
            ),
            Diagnosis(*TOO_SHORT, says("at least one rank")),
            Diagnosis(
                "lists",
                "Return groups, not lists of ranks: new_group makes a group of a list.",
                lambda p: p.done and "([" in str([s.returned for s in p.seen[0]]),
            ),
            Diagnosis(
                "not-a-member",
                "−100 is what new_group returns to a rank that is not in the "
                "group. Keep what it returns for your own row and your own column.",
                lambda p: p.done and "-100" in str([s.returned for s in p.seen[0]]),
            ),
        ],
    )
)

# ---- 08.2 my_all_to_all --------------------------------------------------------------------------


def blocks_of(case: Case, rank: int) -> tuple[list[Tensor]]:
    """A block for each rank."""
    sizes = [
        (3 * rank + 2 * k) % (case.length + 1) if case.options else case.length
        for k in range(case.world)
    ]
    flat = tensor(replace(case, length=sum(sizes), layout="contiguous"), rank)
    return ([lay_out(block.clone(), case.layout) for block in flat.split(sizes)],)


def exchanged(
    given: list[tuple],
    of: Callable[[int, int], int] = lambda rank, k: rank,
    own: Callable[[list, int], list] = lambda rows, rank: rows,
) -> list:
    """Each rank has everybody's block for it, in rank order. The rest are mistakes."""
    return [
        own(
            [
                blocks[of(r, k) % len(given)].clone(memory_format=torch.contiguous_format)
                for k, (blocks,) in enumerate(given)
            ],
            r,
        )
        for r in range(len(given))
    ]


def more_than_sizes(play: Play) -> Iterator[Finding]:
    """In each call one collective, of 8 bytes for each two ranks at most, may carry the lengths."""
    for rank in range(n := play.case.world):
        calls = [e for e in trace_of(play).of(rank) if e.is_collective]
        for e in calls:
            if e.nbytes > 8 * n * n or len(calls) > play.case.calls:
                yield Finding("collective", f"rank {rank} calls {e.op}, {e.nbytes} bytes", rank)


def leaving(play: Play) -> list[int]:
    """By rank, the bytes of its blocks for others."""
    return [
        sum(block.nbytes for k, block in enumerate(play.given(rank)) if k != rank)
        for rank in range(play.case.world)
    ]


def reordered(play: Play) -> bool:
    """Every rank has all its blocks, and not all have them in their places."""
    pairs = zip(play.seen[0], play.expected[0], strict=True) if play.done else ()
    return play.wrong == ["returned"] and all(
        isinstance(got.returned, list)
        and sorted(map(str, got.returned)) == sorted(map(str, w.returned))
        for got, w in pairs
    )


wrong = turned(exchanged)
declare(
    Exercise(
        "08.2",
        "my_all_to_all",
        exchanged,
        inputs=blocks_of,
        core=lambda rng: [
            *cases((2, 3), (1, 2)),
            Case(4, 2),
            Case(5, 1),
            Case(3, 2, calls=2),
            Case(4, rng.randrange(9, 60), numbers="random"),
        ],
        sturdy=lambda rng: [
            Case(1, 3),
            Case(3, 0),
            Case(crowd(rng), 2),
            *(
                Case(w, n, options={"blocks": "of different lengths"})
                for w, n in ((2, 1), (3, 4), (5, 4))
            ),
            *(c for c in hostile(3, 5) if c.layout in ("contiguous", "strided")),
        ],
        special=lambda case: set() if case.length else {"empty"},
        length_is="block length",
        words={"of different lengths": ("the blocks differ in length", LENGTHS)},
        rules=[more_than_sizes],
        budget=[
            sends_at_most(lambda p: p.case.world - 1),
            bytes_at_most(lambda p: max(leaving(p))),
            bytes_in_total_at_least(lambda p: sum(leaving(p))),
        ],
        mistakes=[
            wrong(
                "wrong-block",
                "Each rank has a block from everybody, and not the one for it. Which "
                "of its n blocks does a rank send to rank k?",
                *(
                    {"of": of}
                    for of in (
                        lambda r, k: k,
                        lambda r, k: 0,
                        lambda r, k: r + 1,
                        lambda r, k: r - 1,
                    )
                ),
            ),
            wrong(*OWN_MISSING),
        ],
        diagnoses=[
            Diagnosis(
                "collective",
                "The blocks go by send and receive. Only their lengths may go by a "
                "collective, and only by one.",
                found("collective"),
            ),
            Diagnosis(
                "arrival-order",
                "All blocks are there, and not in their places. Entry k is the "
                "block from rank k, whenever it comes.",
                reordered,
            ),
            Diagnosis(
                "lengths",
                LENGTHS,
                lambda p: "blocks" in p.case.options and says("agree on the shape")(p),
            ),
            Diagnosis(
                "too-much",
                "One message to each other rank, with its block alone, is enough.",
                lambda p: not p.findings and found("sends", "bytes")(p),
            ),
        ],
    )
)

# ---- 08.3 transpose ------------------------------------------------------------------------------


def matrix(case: Case, rank: int) -> tuple[Tensor]:
    """A rank's rows, of ``case.length`` columns for each rank."""
    wide = case.world * case.length
    plain = replace(case, length=case.options["rows"] * wide, layout="contiguous")
    rows = tensor(plain, rank).reshape(-1, wide)
    return (rows.t().contiguous().t() if case.layout == "transposed" else rows,)


def transposed(
    given: list[tuple],
    then: Callable[..., Tensor] = lambda c, _: c.t(),
    by_rows: bool = False,
) -> list:
    """Each rank has its rows of the transposed matrix. The rest are mistakes."""
    n, k = len(given), len(given[0][0])
    cut = [torch.cat([*t.reshape(n, k, -1)], 1) if by_rows else t for (t,) in given]
    return [then(c, c.split(k)).contiguous() for c in torch.cat(cut).chunk(n, dim=1)]


def contiguous(play: Play) -> Iterator[Finding]:
    for rank, seen in enumerate(play.seen[0]):
        if isinstance(seen.returned, Tensor) and not seen.returned.is_contiguous():
            yield Finding("strides", "what is returned is not contiguous", rank)


def one_all_to_all(play: Play) -> Iterator[Finding]:
    """One call, which carries each of a rank's numbers once."""
    for rank in range(play.case.world):
        calls = trace_of(play).of(rank)
        names = [e.op for e in calls]
        if names not in ([], ["all_to_all"], ["all_to_all_single"]):
            yield Finding("calls", f"rank {rank} calls {', '.join(names[:3])}", rank)
        got, most = max((e.nbytes for e in calls), default=0), play.given(rank).nbytes
        if got > most:
            yield Finding(
                "bytes",
                f"rank {rank} calls {names[0]} with {got} bytes; its rows have {most}",
                rank,
                got,
                most,
            )


BY_ROWS = (
    "by-rows",
    "A collective cuts a tensor along its first dimension, so what goes to each "
    "rank is a part of the rows. Here the rows have to be cut by columns.",
)
wrong = turned(transposed)
declare(
    Exercise(
        "08.3",
        "transpose",
        transposed,
        inputs=matrix,
        core=lambda rng: [
            *rows(
                "rows", (2, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 2), (3, 1, 2), (3, 2, 3), (4, 3, 4)
            ),
            *rows(
                "rows", (5, rng.randrange(2, 9), rng.randrange(2, 9)), (3, 4, 2), numbers="random"
            ),
        ],
        sturdy=lambda rng: [
            *rows("rows", (1, 2, 2), (crowd(rng), 1, 2)),
            *rows("rows", (2, 2, 3), layout="transposed"),
            *(case for case in hostile(3, 2, options={"rows": 2}) if case.layout == "contiguous"),
        ],
        length_is="columns for each rank",
        rules=[contiguous],
        budget=[one_all_to_all],
        mistakes=[
            wrong(
                *BY_ROWS,
                {"by_rows": True},
                {"by_rows": True, "then": lambda c, blocks: c.reshape(-1, len(blocks))},
            ),
            wrong(
                "blocks-not-turned",
                "The right numbers have come to each rank, and not to their "
                "places. An exchange moves blocks as they are: transpose each of them once.",
                *(
                    {"then": then}
                    for then in (
                        lambda c, blocks: c,
                        lambda c, blocks: c.reshape(c.t().shape),
                        lambda c, blocks: torch.cat(blocks, 1),
                        lambda c, blocks: torch.cat([b.reshape(b.t().shape) for b in blocks], 1),
                    )
                ),
            ),
            wrong(
                "stacked",
                "Each block is transposed, and they stand one below the other. A row of "
                "Aᵀ goes through all blocks: in which dimension do they meet?",
                *(
                    {"then": lambda c, blocks, end=end: end(torch.cat([b.t() for b in blocks]), c)}
                    for end in (lambda t, c: t, lambda t, c: t.reshape(c.t().shape))
                ),
            ),
        ],
        diagnoses=[
            Diagnosis(
                "not-contiguous",
                "The elements of what is returned do not lie side by side, as "
                "the stub promises: t(), permute() and slices are views of memory that stays as "
                "it is. contiguous() makes a copy in order.",
                found("strides"),
            ),
            Diagnosis(*BY_ROWS, says("is no multiple of", "one per rank, not")),
            Diagnosis(
                "calls",
                "One all_to_all brings to each rank what it needs; a gather, all of A.",
                lambda p: not p.findings and found("calls")(p),
            ),
            Diagnosis(
                "more-than-its-rows",
                "More travels than a rank's rows hold. Each of its numbers "
                "goes to one rank, once and in its own dtype: to which one goes a column?",
                lambda p: not p.findings and only("bytes")(p),
            ),
        ],
    )
)
