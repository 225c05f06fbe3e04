"""Lesson 00: which of the items are this rank's?"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from course_check.cases import Case, chunked, crowd, rows
from course_check.exercise import Play
from course_check.rules import without_a_word
from course_exercises.declare import exercise


def cut_blocks(given: list[tuple]) -> list[range]:
    """One block after the other, larger ones first."""
    n, w = given[0][0], len(given)
    starts = [n // w * rank + min(rank, n % w) for rank in range(w + 1)]
    return [range(start, end) for start, end in pairwise(starts)]


def when_ranges(test: Callable[[list[range], int], bool]) -> Callable[[Play], bool]:
    """All ranks return ranges, which are not the right ones, and of them this is true."""

    def when(play: Play) -> bool:
        wrong = any(f.kind == "returned" and f.call == 0 for f in play.findings)
        ranges = all(type(share) is range for share in play.returned)
        return wrong and ranges and test(play.returned, play.given(0))

    return when


def list_items(shares: list[range]) -> list[int]:
    """The items of all shares, share by share."""
    return [item for share in shares for item in share]


def ends_early(shares: list[range], n: int) -> bool:
    """Each item as far as some item is in one share, and the last ones are in none."""
    items = list_items(shares)
    return items == list(range(len(items))) and len(items) < n


exercise(
    "00.1 my_share",
    cut_blocks,
    inputs=lambda case, rank: (case.length,),
    core=lambda rng: [
        *rows("", (2, 4), (2, 7), (3, 4), (3, 7), (4, 10), (4, 12), (5, 10), (5, 12)),
        Case(5, rng.randrange(20, 400)),
    ],
    sturdy=lambda rng: [
        *rows("", (1, 0), (1, 3), (4, 0), (4, 3), (8, 19), (crowd(rng), 30)),
        Case(3, 4, calls=2, later=({"length": 11},)),
        Case(5, 100_003),
    ],
    length_is="n_items",
    special=chunked,
    blank=False,
    rules=[without_a_word],
    hints={
        "same-for-all": "Every rank gives the same answer, and a share has to depend on the rank. "
        "Which call tells a rank its number?",
        "interleaved": "A share is to be one block of neighbours, and here there are gaps in it.",
        "drops-remainder": "The last items belong to nobody. Add up the sizes of all shares: do "
        "you get n_items?",
        "never-empty": "There are fewer items than ranks, and every rank has got one. Then some "
        "shares have to be empty.",
        "sizes": "Every item is there once, but the sizes are not right: they may differ by 1 at "
        "most, and the larger ones come first.",
        "off-by-one": "An item is in two shares, in none, or does not exist. Does each rank begin "
        "where the one before ends? (A range stops before its end.)",
    },
    diagnoses={
        "same-for-all": when_ranges(lambda shares, n: len(shares) > 1 and len(set(shares)) == 1),
        "interleaved": when_ranges(lambda shares, n: any(s.step != 1 for s in shares)),
        "drops-remainder": when_ranges(ends_early),
        "never-empty": when_ranges(lambda shares, n: n < len(shares) and all(shares)),
        "sizes": when_ranges(lambda shares, n: list_items(shares) == list(range(n))),
        "off-by-one": when_ranges(lambda shares, n: list_items(shares) != list(range(n))),
    },
)
