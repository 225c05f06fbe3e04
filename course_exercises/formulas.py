"""Exercises whose answer is a formula: a plain function that is called and asks nobody.

    formula("03.1", "star_seconds", star,
            core=lambda rng: [(4, 8, 1.0, 0.5), *networks(rng)],
            sturdy=lambda rng: [(1, 8, 1.0, 0.5)],
            mistakes=[("one-way", "hint", {"ways": 1}), …])

Any real number is an answer, right to nine digits: what was computed in float32 is not.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from course_lib.checks.cases import Case
from course_lib.checks.compare import real
from course_lib.checks.exercise import Diagnosis, Exercise, Mistake, Play, declare, turned
from course_lib.checks.rules import without_a_word

Formula = Callable[..., float]
Arguments = Callable[[random.Random], list[tuple]]


# features of their cases, in words
WORDS = {
    "n is 1": ("n is 1", "One rank has nothing to send, and nobody to send it to."),
    "nbytes is 0": ("nbytes is 0", "A message without bytes takes its latency all the same."),
}


def formula(
    number: str,
    name: str,
    right: Formula,
    core: Arguments,
    sturdy: Arguments,
    mistakes: Sequence[tuple[Any, ...]],
) -> Exercise:
    """Declare it; a mistake is an id, a hint, and knobs of the formula, turned one way or several.

    Of two at once, of two knobs, the earlier is named; each is known rounded down, too.
    """
    parameters = inspect.signature(right).parameters.values()
    names = [p.name for p in parameters if p.default is p.empty]  # the others are knobs

    def named(arguments: list[tuple]) -> list[Case]:
        return [Case(1, options=dict(zip(names, values, strict=True))) for values in arguments]

    def asked(given: list[tuple], rounded: Formula = float, **knobs: Any) -> list[float]:
        return [float(rounded(right(*args, **knobs))) for args in given]

    def mistake(at: int, id: str, hint: str, *ways: dict[str, Any]) -> Mistake:
        later = [{}, *(way for _, _, *others in mistakes[at + 1 :] for way in others)]
        return turned(asked)(
            id,
            hint,
            *(
                way | other | {"rounded": rounded}
                for way in ways
                for other in later
                if not way.keys() & other.keys()
                for rounded in (float, math.floor)
            ),
        )

    return declare(
        Exercise(
            number,
            name,
            asked,
            inputs=lambda case, rank: tuple(case.options.values()),
            core=lambda rng: named(core(rng)),
            sturdy=lambda rng: named(sturdy(rng)),
            mistakes=[mistake(at, *known) for at, known in enumerate(mistakes)],
            diagnoses=[
                Diagnosis(
                    "rounded",
                    "It agrees to a few digits, and then differs: was "
                    "something rounded on the way, or computed in float32?",
                    lambda play: nearly(right, play),
                )
            ],
            rules=[without_a_word],
            words=WORDS,
            tolerance=1e-9,
            in_ranks=False,
            special=lambda case: {
                f"{name} is {value:g}"
                for name, value in case.options.items()
                if f"{name} is {value:g}" in WORDS
            },
        )
    )


def nearly(right: Formula, play: Play) -> bool:
    """What came back is within a thousandth of what is right, or is that rounded (down)."""
    got = real(play.got(0).returned) if play.done else None
    want = right(*play.inputs[0][0])
    rounded = [math.floor(want), *(round(want, digits) for digits in range(10))]
    return got not in (None, want) and (got in rounded or abs(got - want) <= 1e-3 * abs(want))


def networks(rng: random.Random, count: int = 6) -> list[tuple]:
    """Drawn arguments, few ranks first: ranks, bytes, and a link's α and β, as links have them or
    quite others."""
    usual = [(rng.uniform(1e-6, 1e-4), rng.uniform(1e-12, 1e-9)) for _ in range(count // 2)]
    odd = [(10 ** rng.uniform(-9, 2), 10 ** rng.uniform(-13, 1)) for _ in range(count // 2)]
    ranks = sorted(rng.randrange(2, 2000) for _ in (*usual, *odd))
    links = zip(ranks, (*usual, *odd), strict=True)
    return [(n, round(10 ** rng.uniform(0, 12)), *link) for n, link in links]
