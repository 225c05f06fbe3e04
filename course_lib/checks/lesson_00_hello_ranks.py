"""Lesson 00: which block of the work is mine?"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from course_lib.checks.cases import Case, cases, crowd
from course_lib.checks.diagnoses import When, any_of, every, only_where, returns
from course_lib.checks.exercise import (
    Diagnosis,
    Evidence,
    Exercise,
    Play,
    Seen,
    declare,
)
from course_lib.checks.rules import without_a_word

Share = Callable[[int, int, int], range]  # (items, ranks, rank)


def blocks(sizes: list[int]) -> list[range]:
    """Blocks of these sizes, one after the other."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [range(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def sizes(items: int, ranks: int) -> list[int]:
    """torch's own rule for splitting: sizes differ by at most one, the larger ones first."""
    return [len(part) for part in torch.empty(items).tensor_split(ranks)]


def expected(play: Play, call: int) -> list[Seen]:
    (items,) = play.inputs[call][0]
    return [Seen(block) for block in blocks(sizes(items, play.case.world))]


def mistake(share: Share) -> When:
    return returns(lambda play, rank: share(play.case.length, play.case.world, rank))


def fixed_world(k: int) -> Share:
    whole = lambda n, _, r: range(r * (n // k), (r + 1) * (n // k))  # noqa: E731
    return lambda n, w, r: blocks(sizes(n, k))[r] if r < k else whole(n, w, r)


def shifted(first: int, last: int) -> Share:
    def share(n: int, w: int, r: int) -> range:
        block = blocks(sizes(n, w))[r]
        return range(block.start + first, block.stop + last)

    return share


def fixed_world_of(k: int) -> When:
    """Right where the world happens to have k ranks, and the split for k ranks elsewhere."""

    def when(e: Evidence) -> bool:
        plays = [p for p in e.plays if p.done]
        return bool(plays) and all(
            p.got(r).returned == fixed_world(k)(p.case.length, p.case.world, r)
            for p in plays for r in range(min(k, p.case.world))) and all(
            p.case.world != k for p in e.failed)  # fmt: skip

    return when


def core(rng: random.Random) -> list[Case]:
    drawn = [Case(w, rng.randrange(4 * w, 400)) for w in (2, 3, 4, 5, 5)]
    return [c for w in range(2, 6) for c in cases([w], [w, 2 * w - 1, 2 * w, 3 * w + 1])] + drawn


def sturdy(rng: random.Random) -> list[Case]:
    few = [c for w in range(2, 6) for c in cases([w], [0, 1, w - 1])]
    again = [Case(3, 7, calls=2, longer=4), Case(4, 8, calls=3, longer=1)]
    drawn = Case(rng.choice((6, 7)), rng.randrange(99))
    many = [Case(3, rng.randrange(10**k, 10 ** (k + 1))) for k in (3, 4, 5)]
    large = [Case(5, 2**20 + 2), Case(2, 2**24 + 7), Case(3, 2**24 + 11)]  # float32 cannot
    return [*cases([1, 8, crowd(rng)], [0, 1, 5, 8, 19]), *few, drawn, *again, *many, *large]


declare(Exercise(
    "00.1", "my_share",
    inputs=lambda case, rank: (case.length,),
    expected=expected,
    core=core,
    sturdy=sturdy,
    length_is="n_items",
    fits=lambda case: case.world > 1 and case.length >= case.world,
    told=lambda case: False,
    rules=[without_a_word],
    diagnoses=[
        Diagnosis("talks", "The shares are right, and ranks talk to one another to find them. From "
                  "which numbers does a share follow, and who knows them already?",
                  every(lambda p: p.kinds() == {"talks"})),
        Diagnosis("drops-remainder", "Add up the sizes of all shares. Do they come to n_items?",
                  mistake(lambda n, w, r: range(r * (n // w), (r + 1) * (n // w)))),
        Diagnosis("last-takes-rest", "Nothing is lost, but one rank has more to do than all the "
                  "others, who will wait for it. How can sizes differ by at most 1?",
                  mistake(lambda n, w, r: range(r * (n // w), n if r == w - 1 else
                                                (r + 1) * (n // w)))),
        Diagnosis("interleaved", "Every item is there once, but a share is to be one block of "
                  "neighbours.", mistake(lambda n, w, r: range(r, n, w))),
        Diagnosis("larger-last", "The sizes are right; which ranks have the larger ones?",
                  mistake(lambda n, w, r: blocks(sizes(n, w)[::-1])[r])),
        Diagnosis("rounds-up", "With every share rounded up, the last ranks go short: sizes "
                  "differ by more than 1.",
                  mistake(lambda n, w, r: range(min(n, r * -(-n // w)),
                                                min(n, (r + 1) * -(-n // w))))),
        Diagnosis("same-for-all", "Every rank gives the same answer. Who is asking?",
                  any_of(mistake(lambda n, w, r: range(n)),
                         mistake(lambda n, w, r: blocks(sizes(n, w))[0]))),
        Diagnosis("local-rank", "LOCAL_RANK counts the ranks of one machine, and every machine has "
                  "a 0. Which number is a rank's own in the whole world?",
                  mistake(lambda n, w, r: blocks(sizes(n, w))[r % 2])),
        Diagnosis("off-by-one", "Look at the first and last item of each share: where one ends, "
                  "the next one begins, and a range stops before its end.",
                  any_of(*(mistake(shifted(first, last)) for first, last in (
                      (0, -1), (0, 1), (1, 1), (1, 0), (-1, -1), (-1, 0))))),
        Diagnosis("fixed-world", "It is right for one size of world only. The world can say how "
                  "large it is.", any_of(*map(fixed_world_of, (2, 3, 4, 5, 8)))),
        Diagnosis("few-items", "With fewer items than ranks some ranks own nothing, and that is "
                  "a range, too.", only_where(lambda p: p.case.length < p.case.world)),
    ],
))  # fmt: skip
