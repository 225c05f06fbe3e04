"""Lesson 08: groups of a grid's rows and columns; everybody to everybody; a transpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from course_check.cases import Case, crowd, hostile, lay_out, rows, tensor
from course_check.exercise import Finding, Play
from course_check.harness.answer import group_of
from course_check.rules import bytes_at_most, bytes_in_total_at_least, sends_at_most
from course_check.usual_diagnoses import OfPlay, only, says
from course_exercises.declare import apart_in_new_group, each, exercise, over_budget
from course_exercises.whole_tensors import OWN_MISSING, WITHOUT_OWN

# ---- 08.1 grid_groups ----------------------------------------------------------------------------


ROW, COLUMN = 0, 1


def make_grid(
    given: list[tuple],
    swapped: bool = False,
    down_first: bool = False,
    last_missing: tuple[int, ...] = (),
    too_short: tuple[int, ...] = (),
    least: int = 1,
) -> list:
    """Each rank's row and column of a grid that is filled row by row. The rest are mistakes."""
    rows, cols = given[0]
    world, width = rows * cols, rows if down_first else cols

    def group(which: int, ranks: range, rank: int) -> str | None:
        if len(ranks) < least or (which in last_missing and ranks[-1] == world - 1):
            return None
        if which not in too_short:
            return group_of(ranks)
        return None if rank == ranks[-1] else group_of(ranks[:-1])

    pairs = []
    for rank in range(world):
        first = rank // width * width
        row = group(ROW, range(first, first + width), rank)
        column = group(COLUMN, range(rank % width, world, width), rank)
        pairs.append((column, row) if swapped or down_first else (row, column))
    return pairs


def check_made(play: Play) -> Iterator[Finding]:
    """A group has been made for each row and each column."""
    there = {group_of(ranks) for ranks in play.trace.groups.values()}
    for rank, want in enumerate(play.expected[0]):
        for which, group in zip(("row", "column"), want.returned, strict=True):
            if group not in there:
                yield Finding("not made", f"the group of the {which} has not been made", rank)


def list_grids(*shapes: tuple[int, int]) -> list[Case]:
    return [Case(r * c, options={"rows": r, "cols": c}) for r, c in shapes]


def when_returned(text: str) -> OfPlay:
    """This is in the text of what the ranks return."""
    return lambda play: text in str(play.returned)


exercise(
    "08.1 grid_groups",
    make_grid,
    inputs=lambda case, rank: tuple(case.options.values()),
    core=lambda rng: list_grids((1, 2), (2, 1), (2, 2), (1, 3), (2, 3), (3, 2)),
    sturdy=lambda rng: list_grids((1, 1), (1, 5), (4, 1), (3, 4), (rng.randrange(4, 6), 4)),
    words={"uneven sides": "the grid is not square. Which lines mean rows, and which columns?"},
    special=lambda case: {"uneven sides"} if len({*case.options.values()}) > 1 else set(),
    blank=False,
    rules=[check_made],
    hints={
        "swapped": "Row and column have changed places.",
        "down-first": "The grid is filled column by column. Ranks count along a row first: rank 1 "
        "is to the right of rank 0.",
        "last-missing": "Ranks in the last row or column have no group. How many rows and columns "
        "are there to make?",
        "not-together": "The ranks do not make the same groups in the same order. Every rank "
        "calls new_group for every group, even for those that it is not in.",
        "too-short": "A group lacks ranks. Does each range reach the last rank that it should?",
        "alone": "A group of one rank is a group, too, and the answer leaves it out.",
        "lists": "Return groups, not lists of ranks: new_group makes a group of a list.",
        "not-a-member": "−100 is what new_group returns to a rank that is not in the group. Keep "
        "what it returns for your own row and your own column.",
    },
    mistakes={
        "swapped": {"swapped": True},
        "down-first": {"down_first": True},
        "last-missing": each(last_missing=((ROW,), (COLUMN,), (ROW, COLUMN))),
        "too-short": each(too_short=((ROW,), (COLUMN,), (ROW, COLUMN))),
        "alone": {"least": 2},
    },
    diagnoses={
        "not-together": apart_in_new_group,
        "too-short": says("at least one rank"),
        "lists": when_returned("(["),
        "not-a-member": when_returned("-100"),
    },
)

# ---- 08.2 my_all_to_all --------------------------------------------------------------------------


LENGTHS = "In the table of lengths, what a rank sends is its row. What does it receive?"


def make_blocks(case: Case, rank: int) -> tuple[list[Tensor]]:
    """A block for each rank."""
    unequal = [(3 * rank + 2 * k) % (case.length + 1) for k in range(case.world)]
    sizes = unequal if case.options else [case.length] * case.world
    flat = tensor(replace(case, length=sum(sizes), layout="contiguous"), rank)
    return ([lay_out(block.clone(), case.layout) for block in flat.split(sizes)],)


def exchange_blocks(
    given: list[tuple],
    sent: Callable[[int, int], int] = lambda to, sender: to,
    own: Callable[[list, int], list] = lambda blocks, rank: blocks,
) -> list:
    """Each rank has everybody's block for it, in rank order. The rest are mistakes."""
    n = len(given)

    def received(rank: int) -> list[Tensor]:
        blocks = [blocks[sent(rank, k) % n] for k, (blocks,) in enumerate(given)]
        return [block.clone(memory_format=torch.contiguous_format) for block in blocks]

    return [own(received(rank), rank) for rank in range(n)]


def check_collectives(play: Play) -> Iterator[Finding]:
    """In each call one collective, of 8 bytes for each two ranks at most, may carry the lengths."""
    for rank in range(n := play.case.world):
        calls = [e for e in play.trace.of(rank) if e.is_collective]
        for e in calls:
            if e.nbytes > 8 * n * n or len(calls) > play.case.calls:
                yield Finding("collective", f"rank {rank} calls {e.op}, {e.nbytes} bytes", rank)


def measure_leaving(play: Play) -> list[int]:
    """By rank, the bytes of its blocks for others."""
    return [sum(b.nbytes for k, b in enumerate(play.given(r)) if k != r) for r in play.ranks]


def are_reordered(play: Play) -> bool:
    """Every rank has all its blocks, and not all have them in their places."""

    def texts(blocks: object) -> list[str]:
        return sorted(map(str, blocks)) if isinstance(blocks, list) else []

    pairs = zip(play.returned, play.expected[0], strict=True) if play.done else ()
    return play.wrong == ["returned"] and all(texts(a) == texts(b.returned) for a, b in pairs)


exercise(
    "08.2 my_all_to_all",
    exchange_blocks,
    inputs=make_blocks,
    core=lambda rng: [
        *rows("", (2, 1), (2, 2), (3, 1), (3, 2), (4, 2), (5, 1)),
        Case(3, 2, calls=2),
        Case(4, rng.randrange(9, 60), numbers="random"),
    ],
    sturdy=lambda rng: [
        *rows("", (1, 3), (3, 0), (crowd(rng), 2)),
        *rows("", (2, 1), (3, 4), (5, 4), options={"blocks": "of different lengths"}),
        *(c for c in hostile(3, 5) if c.layout in ("contiguous", "strided")),
    ],
    special=lambda case: set() if case.length else {"empty"},
    length_is="block length",
    words={"of different lengths": f"the blocks differ in length. {LENGTHS}"},
    rules=[check_collectives],
    budget=[
        sends_at_most(lambda p: p.case.world - 1),
        bytes_at_most(lambda p: max(measure_leaving(p))),
        bytes_in_total_at_least(lambda p: sum(measure_leaving(p))),
    ],
    hints={
        "wrong-block": "Each rank has a block from everybody, but not the one that was for it. "
        "Which of its n blocks does a rank send to rank k?",
        "own-missing": OWN_MISSING,
        "collective": "The blocks go by send and receive. Only their lengths may go by a "
        "collective, and only by one.",
        "arrival-order": "All blocks are there, but not in their places. Entry k is the block "
        "from rank k, whenever it comes.",
        "lengths": LENGTHS,
        "too-much": "One message to each other rank, with its block alone, is enough.",
    },
    mistakes={
        "wrong-block": [
            {"sent": lambda to, sender: sender},
            {"sent": lambda to, sender: 0},
            {"sent": lambda to, sender: to + 1},
            {"sent": lambda to, sender: to - 1},
        ],
        "own-missing": WITHOUT_OWN,
    },
    diagnoses={
        "arrival-order": are_reordered,
        "lengths": lambda p: "blocks" in p.case.options and says("agree on the shape")(p),
        "too-much": over_budget("sends", "bytes"),
    },
)

# ---- 08.3 transpose ------------------------------------------------------------------------------


def make_rows(case: Case, rank: int) -> tuple[Tensor]:
    """A rank's rows, of ``case.length`` columns for each rank."""
    wide = case.world * case.length
    plain = replace(case, length=case.options["rows"] * wide, layout="contiguous")
    rows = tensor(plain, rank).reshape(-1, wide)
    return (rows.t().contiguous().t() if case.layout == "transposed" else rows,)


def transpose(
    given: list[tuple],
    arranged: Callable[..., Tensor] = lambda columns, blocks: columns.t(),
    by_rows: bool = False,
) -> list:
    """Each rank has its rows of the transposed matrix. The rest are mistakes: a rank's ``columns``,
    or the ``blocks`` of them that came from each rank, arranged in another way."""
    n, k = len(given), len(given[0][0])
    cut = [torch.cat([*t.reshape(n, k, -1)], 1) if by_rows else t for (t,) in given]
    return [arranged(own, own.split(k)).contiguous() for own in torch.cat(cut).chunk(n, dim=1)]


def keep_order(t: Tensor) -> Tensor:
    """The numbers as they lie, in the shape that the transposed one has."""
    return t.reshape(t.t().shape)


def stack(columns: Tensor, blocks: tuple[Tensor, ...]) -> Tensor:
    """A mistake: the transposed blocks, one below the other."""
    return torch.cat([block.t() for block in blocks])


def check_contiguous(play: Play) -> Iterator[Finding]:
    """What is returned is contiguous."""
    for rank, t in enumerate(play.returned):
        if isinstance(t, Tensor) and not t.is_contiguous():
            yield Finding("not-contiguous", "what is returned is not contiguous", rank)


def check_one_all_to_all(play: Play) -> Iterator[Finding]:
    """One call, which carries each of a rank's numbers once."""
    for rank in play.ranks:
        calls = play.trace.of(rank)
        names = [e.op for e in calls]
        if names not in ([], ["all_to_all"], ["all_to_all_single"]):
            yield Finding("calls", f"rank {rank} calls {', '.join(names[:3])}", rank)
        got, most = max((e.nbytes for e in calls), default=0), play.given(rank).nbytes
        if got > most:
            text = f"rank {rank} calls {names[0]} with {got} bytes; its rows have {most}"
            yield Finding("bytes", text, rank, got, most)


exercise(
    "08.3 transpose",
    transpose,
    inputs=make_rows,
    core=lambda rng: [
        *rows("rows", (2, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 2)),
        *rows("rows", (3, 1, 2), (3, 2, 3), (4, 3, 4)),
        *rows("rows", (5, rng.randrange(2, 9), rng.randrange(2, 9)), (3, 4, 2), numbers="random"),
    ],
    sturdy=lambda rng: [
        *rows("rows", (1, 2, 2), (crowd(rng), 1, 2)),
        *rows("rows", (2, 2, 3), layout="transposed"),
        *(case for case in hostile(3, 2, options={"rows": 2}) if case.layout == "contiguous"),
    ],
    length_is="columns for each rank",
    rules=[check_contiguous],
    budget=[check_one_all_to_all],
    hints={
        "not-contiguous": "The elements of what is returned do not lie side by side, as the stub "
        "promises: t(), permute() and slices are views of memory that stays as it is. "
        "contiguous() makes a copy in order.",
        "by-rows": "A collective cuts a tensor along its first dimension, so what goes to each "
        "rank is a part of the rows. Here the rows have to be cut by columns.",
        "blocks-not-turned": "The right numbers have come to each rank, but not to their places. "
        "An exchange moves blocks as they are: transpose each of them once.",
        "stacked": "Each block is transposed, and they stand one below the other. A row of Aᵀ "
        "goes through all blocks: in which dimension do they meet?",
        "calls": "One all_to_all brings to each rank what it needs. A gather brings it all of A.",
        "more-than-its-rows": "More travels than a rank's rows hold. Each of its numbers goes to "
        "one rank, once and in its own dtype: to which one goes a column?",
    },
    mistakes={
        "by-rows": [
            {"by_rows": True},
            {"by_rows": True, "arranged": lambda columns, blocks: columns.reshape(-1, len(blocks))},
        ],
        "blocks-not-turned": [
            {"arranged": lambda columns, blocks: columns},
            {"arranged": lambda columns, blocks: torch.cat(blocks, 1)},
            {"arranged": lambda columns, blocks: keep_order(columns)},
            {"arranged": lambda columns, blocks: torch.cat([*map(keep_order, blocks)], 1)},
        ],
        "stacked": [
            {"arranged": stack},
            {"arranged": lambda columns, blocks: stack(columns, blocks).view_as(columns.t())},
        ],
    },
    diagnoses={
        "by-rows": says("is no multiple of", "one per rank, not"),
        "calls": over_budget("calls"),
        "more-than-its-rows": lambda p: not p.findings and only("bytes")(p),
    },
)
