"""Lesson 08: groups of a grid's rows and columns; everybody to everybody; a transpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from course_lib.checks.cases import Case, cases, crowd, hostile, lay_out, tensor
from course_lib.checks.diagnose import found
from course_lib.checks.exercise import Diagnosis, Exercise, Finding, Play, declare, turned
from course_lib.checks.in_rank import group_of
from course_lib.checks.lesson_02_collectives import OWN_MISSING
from course_lib.checks.rules import bytes_at_most, bytes_in_total_at_least, sends_at_most, trace_of
from course_lib.errors import Deadlock, Mismatch

# ---- 08.1 grid_groups ----------------------------------------------------------------------------


def grid(
    given: list[tuple], flipped: bool = False, down: bool = False, size: bool = False,
    lost: tuple[int, ...] = (),
) -> list:  # fmt: skip
    """Each rank's row and column of a grid that is filled row by row. The rest are mistakes."""
    rows, cols = given[0]
    wide, out = rows if size or down else cols, []
    for rank in range(rows * cols):
        row = range(rank // wide * wide, rank // wide * wide + wide)
        pair = [group_of(row), group_of(range(rank % wide, rows * cols, wide))]
        last = rank // cols == rows - 1, rank % cols == cols - 1
        pair = pair[::-1] if flipped or down else pair
        out.append(tuple(None if k in lost and last[k] else pair[k] for k in (0, 1)))
    return out


def made(play: Play) -> Iterator[Finding]:
    there = {group_of(ranks) for ranks in trace_of(play).groups.values()}
    for rank, want in enumerate(play.expected[0]):
        if not there.issuperset(want.returned):
            yield Finding("not made", "its groups have not been made", rank)


def grids(*shapes: tuple[int, int]) -> list[Case]:
    return [Case(r * c, options={"rows": r, "cols": c}) for r, c in shapes]


wrong = turned(grid)
declare(Exercise(
    "08.1", "grid_groups", grid, inputs=lambda case, rank: tuple(case.options.values()),
    core=lambda rng: grids((1, 2), (2, 2), (1, 3), (3, 1), (2, 3), (3, 2)),
    sturdy=lambda rng: grids((1, 1), (1, 5), (4, 1), (3, 4), (rng.randrange(4, 6), 4)),
    smaller=lambda case: grids((1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (2, 3), (3, 2)),
    special=lambda case: {"uneven sides"} if len({*case.options.values()}) > 1 else set(),
    blank=False, length_is="", rules=[made],
    mistakes=[
        wrong("swapped", "Row and column have changed places.", flipped=True),
        wrong("down-first", "The grid is filled column by column. Ranks count along a row first: "
              "rank 1 is to the right of rank 0.", down=True),
        wrong("size-for-size", "Rows have the length that columns should have. How many ranks are "
              "in a row: `rows` of them, or `cols`?", size=True),
        wrong("last-missing", "Ranks in the last row or column have no group. How many rows and "
              "columns are there to make?", {"lost": (0,)}, {"lost": (1,)}, {"lost": (0, 1)}),
    ],
    diagnoses=[
        Diagnosis("not-together", "The ranks do not make the same groups in the same order. Every "
                  "rank calls new_group for every group, also for those that it is not in.",
                  lambda p: isinstance(p.error, Mismatch | Deadlock)
                  and "new_group" in str(p.error)),
        Diagnosis("not-made", "No group is made. new_group makes one of a list of ranks.",
                  lambda p: p.done and len(trace_of(p).groups) == 1),
        Diagnosis("not-a-member", "−100 is what new_group returns to a rank that is not in the "
                  "group. Keep what it returns for your own row and your own column.",
                  lambda p: p.done and "-100" in str([s.returned for s in p.seen[0]])),
    ],
))  # fmt: skip

# ---- 08.2 my_all_to_all --------------------------------------------------------------------------


def blocks_of(case: Case, rank: int) -> tuple[list[Tensor]]:
    """A block for each rank."""
    sizes = [(3 * rank + 2 * k) % (case.length + 1) if case.options else case.length
             for k in range(case.world)]  # fmt: skip
    flat = tensor(replace(case, length=sum(sizes), layout="contiguous"), rank)
    return ([lay_out(block.clone(), case.layout) for block in flat.split(sizes)],)


def exchanged(
    given: list[tuple], of: Callable[[int, int], tuple[int, int]] = lambda rank, k: (k, rank),
    own: Callable[[list, int], list] = lambda rows, rank: rows,
) -> list:  # fmt: skip
    """Each rank has everybody's block for it, in rank order. The rest are mistakes."""
    n = len(given)
    places = [[of(rank, k) for k in range(n)] for rank in range(n)]
    mine = [[given[whose % n][0][number % n].clone(memory_format=torch.contiguous_format)
             for whose, number in row] for row in places]  # fmt: skip
    return [own(row, rank) for rank, row in enumerate(mine)]


def more_than_sizes(play: Play) -> Iterator[Finding]:
    """In each call one collective, of 8 bytes for each two ranks at most, may carry the lengths."""
    for rank in range(n := play.case.world):
        calls = [e for e in trace_of(play).of(rank) if e.is_collective]
        for e in calls:
            if e.nbytes > 8 * n * n or len(calls) > play.case.calls:
                yield Finding("collective", f"rank {rank} calls {e.op}, {e.nbytes} bytes", rank)


def leaving(play: Play, rank: int) -> int:
    """Bytes of a rank's blocks for others."""
    return sum(block.nbytes for k, block in enumerate(play.given(rank)) if k != rank)


def reordered(play: Play) -> bool:
    """Every rank has all its blocks, and not all have them in their places."""
    pairs = zip(play.seen[0], play.expected[0], strict=True) if play.done else ()
    return play.wrong == ["returned"] and all(isinstance(got.returned, list) and sorted(
        map(str, got.returned)) == sorted(map(str, w.returned)) for got, w in pairs)  # fmt: skip


def within(*kinds: str) -> Callable[[Play], bool]:
    """Everything is right, and too much of these kinds has been said."""
    return lambda p: p.done and not p.findings and found(*kinds)(p)


wrong = turned(exchanged)
declare(Exercise(
    "08.2", "my_all_to_all", exchanged, inputs=blocks_of,
    core=lambda rng: [*cases((2, 3), (1, 2)), Case(4, 2), Case(5, 1), Case(3, 2, calls=2),
                      Case(4, rng.randrange(9, 60), numbers="random")],
    sturdy=lambda rng: [Case(1, 3), Case(3, 0), Case(crowd(rng), 2),
                        *cases((2, 3, 5), (4,), options={"blocks": "of different lengths"}),
                        *(c for c in hostile(3, 5) if c.layout in ("contiguous", "strided"))],
    special=lambda case: set() if case.length else {"empty"}, length_is="block length",
    rules=[more_than_sizes],
    budget=[sends_at_most(lambda p: p.case.world - 1),
            bytes_at_most(lambda p: max(leaving(p, rank) for rank in range(p.case.world))),
            bytes_in_total_at_least(lambda p: sum(leaving(p, r) for r in range(p.case.world)))],
    mistakes=[
        wrong("wrong-block", "Each rank has a block from everybody, and not the one for it. Which "
              "of its n blocks does a rank send to rank k?", *({"of": of} for of in (
                  lambda rank, k: (k, k), lambda rank, k: (k, 0), lambda rank, k: (k, rank + 1),
                  lambda rank, k: (k, rank - 1)))),
        wrong(*OWN_MISSING),
    ],
    diagnoses=[
        Diagnosis("collective", "The blocks go by send and receive. Only their lengths may go by a "
                  "collective, and only by one.", found("collective")),
        Diagnosis("arrival-order", "All blocks are there, and not in their places. Entry k is the "
                  "block from rank k, whenever it comes.", reordered),
        Diagnosis("too-much", "One message to each other rank is enough, with the block for that "
                  "rank and nothing else.", within("sends", "bytes")),
    ],
))  # fmt: skip

# ---- 08.3 transpose ------------------------------------------------------------------------------


def matrix(case: Case, rank: int) -> tuple[Tensor]:
    """A rank's rows, of ``case.length`` columns for each rank."""
    wide = case.world * case.length
    plain = replace(case, length=case.options["rows"] * wide, layout="contiguous")
    rows = tensor(plain, rank).reshape(-1, wide)
    return (rows.t().contiguous().t() if case.layout == "transposed" else rows,)


def transposed(
    given: list[tuple], then: Callable[..., Tensor] = lambda columns, blocks: columns.t(),
) -> list:  # fmt: skip
    """Each rank has its rows of the transposed matrix. The rest are mistakes."""
    n, k = len(given), len(given[0][0])
    columns = torch.cat([t for (t,) in given]).chunk(n, dim=1)
    return [then(c, c.split(k)).clone(memory_format=torch.contiguous_format) for c in columns]


def contiguous(play: Play) -> Iterator[Finding]:
    for rank, seen in enumerate(play.seen[0]):
        if isinstance(seen.returned, Tensor) and not seen.returned.is_contiguous():
            yield Finding("strides", "what is returned is not contiguous", rank)


def one_all_to_all(play: Play) -> Iterator[Finding]:
    for rank in range(play.case.world):
        names = [e.op for e in trace_of(play).of(rank)]
        if names not in ([], ["all_to_all"], ["all_to_all_single"]):
            yield Finding("calls", f"rank {rank} calls {', '.join(names[:3])}", rank)


def matrices(*sizes: tuple[int, int, int], **rest: Any) -> list[Case]:
    return [Case(world, length, options={"rows": k}, **rest) for world, k, length in sizes]


wrong = turned(transposed)
declare(Exercise(
    "08.3", "transpose", transposed, inputs=matrix,
    core=lambda rng: [
        *matrices((2, 1, 1), (2, 2, 1), (2, 1, 2), (2, 2, 2), (3, 2, 1), (3, 3, 2), (4, 4, 3)),
        *matrices((5, rng.randrange(2, 9), rng.randrange(2, 9)), (3, 2, 4), numbers="random")],
    sturdy=lambda rng: [*matrices((1, 2, 3), (crowd(rng), 2, 1)),
                        *matrices((2, 3, 2), layout="transposed"),
                        *(case for case in hostile(3, 2, options={"rows": 2})
                          if case.layout == "contiguous")],
    length_is="columns for each rank", rules=[contiguous], budget=[one_all_to_all],
    mistakes=[
        wrong("blocks-not-turned", "The right numbers have come to each rank, and not to their "
              "places. An exchange moves blocks: nothing inside a block has been transposed.",
              *({"then": then} for then in (
                  lambda c, blocks: c, lambda c, blocks: c.reshape(c.t().shape),
                  lambda c, blocks: torch.cat(blocks, 1),
                  lambda c, blocks: torch.cat([b.reshape(b.t().shape) for b in blocks], 1)))),
        wrong("stacked", "Each block is transposed, and they stand one below the other. A row of "
              "Aᵀ goes through all blocks: in which dimension do they meet?",
              *({"then": lambda c, blocks, end=end: end(torch.cat([b.t() for b in blocks]), c)}
                for end in (lambda t, c: t, lambda t, c: t.reshape(c.t().shape)))),
    ],
    diagnoses=[
        Diagnosis("not-contiguous", "t() is another view of the same memory. The stub promises "
                  "rows that lie side by side: contiguous() makes such a copy.", found("strides")),
        Diagnosis("calls", "One all_to_all is enough: it brings to each rank what that rank needs. "
                  "A gather brings all of A to all of them.", within("calls")),
    ],
))  # fmt: skip
