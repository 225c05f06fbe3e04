"""Lesson 00: which of the items are this rank's?"""

from __future__ import annotations

from collections.abc import Callable

from course_lib.checks.cases import Case, cases, chunked, crowd
from course_lib.checks.exercise import Exercise, declare, turned
from course_lib.checks.rules import without_a_word


def fair(n: int, w: int) -> list[int]:
    return [(n + w - 1 - r) // w for r in range(w)]


def blocks(
    given: list[tuple],
    sizes: Callable[[int, int], list[int]] = fair,
    which: Callable[[int], int] = lambda rank: rank, first: int = 0, last: int = 0,
    step: int = 0, world: int = 0, rounded_up: bool = False,
) -> list[range]:  # fmt: skip
    """One block after the other, larger ones first. The rest are mistakes."""
    n, w = given[0][0], world or len(given)
    if step:
        return [range(r, n, w) for r in range(len(given))]
    if rounded_up:
        each = -(-n // w)
        return [range(min(n, r * each), min(n, (r + 1) * each)) for r in range(len(given))]
    size = sizes(n, w) + [n // w] * (len(given) - w)
    ends = [range(sum(size[:r]), sum(size[: r + 1])) for r in range(len(size))]
    mine = [ends[which(r)] for r in range(len(given))]
    return [range(b.start + first, b.stop + last) for b in mine]


wrong = turned(blocks)
EDGES = [{"first": a, "last": b} for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)]

declare(Exercise(
    "00.1", "my_share", blocks,
    inputs=lambda case, rank: (case.length,),
    core=lambda rng: [*cases((2, 3), (4, 7)), *cases((4, 5), (10, 12)),
                      Case(5, rng.randrange(20, 400))],
    sturdy=lambda rng: [*cases((1, 4), (0, 3)), Case(8, 19), Case(crowd(rng), 30),
                        Case(3, 7, calls=2, later=({"length": 11},)), Case(5, 100_003)],
    length_is="n_items", special=chunked, blank=False,
    fits=lambda case: 1 < case.world < case.length,
    rules=[without_a_word],
    mistakes=[
        wrong("drops-remainder", "Add up the sizes of all shares. Is that n_items?",
              sizes=lambda n, w: [n // w] * w),
        wrong("last-takes-rest", "Nothing is lost, but one rank has more to do than the others, "
              "who will wait for it. How can sizes differ by at most 1?",
              sizes=lambda n, w: [n // w] * (w - 1) + [n - n // w * (w - 1)]),
        wrong("first-takes-rest", "Nothing is lost, but one rank has more to do than the others, "
              "who will wait for it. How can sizes differ by at most 1?",
              sizes=lambda n, w: [n - n // w * (w - 1)] + [n // w] * (w - 1)),
        wrong("interleaved", "Every item is there once, but a share is to be one block of "
              "neighbours.", step=1),
        wrong("larger-last", "The sizes are right. Which ranks have the larger ones?",
              sizes=lambda n, w: [(n + r) // w for r in range(w)]),
        wrong("rounds-up", "Every share is rounded up, so the last ranks go short: sizes differ "
              "by more than 1.", rounded_up=True),
        wrong("everything", "Every rank has all items. Who is asking?",
              sizes=lambda n, w: [n] * w, which=lambda rank: 0),
        wrong("same-for-all", "Every rank gives the same answer. Who is asking?",
              which=lambda rank: 0),
        wrong("local-rank", "LOCAL_RANK counts the ranks of one machine, and every machine has "
              "a 0. Which number is a rank's own in the whole world?", which=lambda rank: rank % 2),
        wrong("off-by-one", "Look at the first and the last item of each share: where one ends "
              "the next one begins, and a range stops before its end.", *EDGES),
        wrong("fixed-world", "It is right for one number of ranks only. The world can say how "
              "many there are.", *({"world": w} for w in (2, 3, 4, 5, 8))),
    ],
))  # fmt: skip
