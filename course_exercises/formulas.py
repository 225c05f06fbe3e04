"""Exercises whose answer is a formula: a plain function that is called and asks nobody.

    formula("03.1 star_seconds", star,
            core=lambda rng: [(4, 8, 1.0, 0.5), *networks(rng)],
            sturdy=lambda rng: [(1, 8, 1.0, 0.5)],
            hints={"one-way": "…"}, mistakes={"one-way": {"ways": 1}})

Any real number is an answer, right to nine digits: what was computed in float32 is not. Of two
mistakes at once the earlier is named, and each is known rounded down, too.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from course_check.cases import Case
from course_check.compare import real
from course_check.exercise import Exercise, Play
from course_check.rules import without_a_word
from course_exercises.declare import Knobs, Mistakes, exercise, several

Formula = Callable[..., float]
Arguments = Callable[[random.Random], list[tuple]]
ROUNDED = (
    "That is the right number, rounded: was something rounded on the way (// rounds down), or "
    "computed in float32?"
)

NOTHING_TO_SEND: dict[str, str | None] = {
    "n is 1": "n is 1. One rank has nothing to send, and nobody to send it to.",
    "nbytes is 0": "nbytes is 0. A message without bytes takes its latency all the same.",
}


def formula(
    title: str,
    right: Formula,
    core: Arguments,
    sturdy: Arguments,
    hints: dict[str, str],
    mistakes: Mistakes,
    roundings: Sequence[Formula] = (float, math.floor),
) -> Exercise:
    """Declare it; its arguments are the parameters without a default, the others are knobs. Rounded
    down, all shares of one are 0: such a formula is known unrounded alone."""
    parameters = inspect.signature(right).parameters.values()
    names = [p.name for p in parameters if p.default is p.empty]

    def named(arguments: list[tuple]) -> list[Case]:
        few_first = sorted(arguments, key=itemgetter(0)) if names[0] == "n" else arguments
        return [Case(1, options=dict(zip(names, values, strict=True))) for values in few_first]

    def asked(given: list[tuple], rounded: Formula = float, **knobs: Any) -> list[float]:
        return [float(rounded(right(*args, **knobs))) for args in given]

    def special(case: Case) -> set[str]:
        return {
            f"{name} is {value:g}" for name, value in case.options.items()
        } & NOTHING_TO_SEND.keys()

    return exercise(
        title,
        asked,
        inputs=lambda case, rank: tuple(case.options.values()),
        core=lambda rng: named(core(rng)),
        sturdy=lambda rng: named(sturdy(rng)),
        rules=[without_a_word],
        words=NOTHING_TO_SEND,
        tolerance=1e-9,
        in_ranks=False,
        special=special,
        hints=hints | {"rounded": ROUNDED},
        mistakes={id: [*combine_ways(mistakes, id, roundings)] for id in mistakes},
        diagnoses={"rounded": partial(is_nearly_right, right)},
    )


def combine_ways(mistakes: Mistakes, id: str, roundings: Sequence[Formula]) -> Iterator[Knobs]:
    """The ways to make this mistake: alone, with a later one, and each of these rounded down."""
    after = list(mistakes).index(id) + 1
    others = [way for ways in [*mistakes.values()][after:] for way in several(ways)]
    for way in several(mistakes[id]):
        for later in [{}, *others]:
            if not way.keys() & later.keys():
                yield from (way | later | {"rounded": rounded} for rounded in roundings)


def is_nearly_right(right: Formula, play: Play) -> bool:
    """What came back is within a thousandth of what is right, or is that rounded (down)."""
    got = real(play.got(0).returned) if play.done else None
    want = right(*play.inputs[0][0])
    rounded = [math.floor(want), *(round(want, digits) for digits in range(10))]
    return got not in (None, want) and (got in rounded or abs(got - want) <= 1e-3 * abs(want))


def nothing_on_the_way(rng: random.Random) -> list[tuple]:
    """One rank alone, no bytes, a link without latency, and one of infinite bandwidth."""
    return [(1, 8, 1.0, 0.5), (4, 0, 1.0, 0.5), (3, 7, 0.0, 0.5), (3, 7, 1.0, 0.0)]


def networks(rng: random.Random, count: int = 6) -> list[tuple]:
    """Drawn arguments, few ranks first: ranks, bytes, and a link's α and β, as links have them or
    quite others."""
    usual = [(rng.uniform(1e-6, 1e-4), rng.uniform(1e-12, 1e-9)) for _ in range(count // 2)]
    odd = [(10 ** rng.uniform(-9, 2), 10 ** rng.uniform(-13, 1)) for _ in range(count // 2)]
    ranks = sorted(rng.randrange(2, 2000) for _ in (*usual, *odd))
    links = zip(ranks, (*usual, *odd), strict=True)
    return [(n, round(10 ** rng.uniform(0, 12)), *link) for n, link in links]
