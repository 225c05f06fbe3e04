"""Exercises that are a formula: a plain function of numbers, called without ranks.

    def star_time(n, nbytes, alpha, beta): ...          # what is right, under the stub's names

    declare(formula(
        "03.1", "star_seconds", star_time,
        core=lambda rng: [(3, 8, 1.0, 0.5), …],          # tuples of arguments, small ones first
        sturdy=lambda rng: [(1, 8, 1.0, 0.5), …],
        diagnoses=[
            mistake("one-way", "hint", lambda n, s, a, b: a + (n - 1) * s * b),
            Diagnosis("alone", "hint", only_where(lambda p: p.case.options["n"] == 1)),
        ],
    ))

Any real number is an answer: a float or an int, a fraction, a scalar of numpy, a tensor of no
dimensions. It has to be right to nine digits, so what was computed in float32 is not. A bool, a
string or None is no number.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy
import torch

from course_lib.checks.cases import Case
from course_lib.checks.compare import ANYTHING
from course_lib.checks.diagnoses import both, every, raised, some
from course_lib.checks.exercise import Diagnosis, Evidence, Exercise, Play, Seen
from course_lib.checks.rules import without_a_word

Formula = Callable[..., float]
Arguments = Callable[[random.Random], list[tuple]]

TOLERANCE = 1e-9  # relative
_SCALARS = (Fraction, numpy.float16, numpy.float32, numpy.int32, numpy.int64)


def formula(
    number: str, name: str, right: Formula, core: Arguments, sturdy: Arguments,
    diagnoses: Sequence[Diagnosis],
) -> Exercise:  # fmt: skip
    """An exercise whose answer computes ``right``, whose parameters have the stub's names."""
    names = list(inspect.signature(right).parameters)

    def named(arguments: list[tuple]) -> list[Case]:
        return [Case(1, options=dict(zip(names, values, strict=True))) for values in arguments]

    def expected(play: Play, call: int) -> list[Seen]:
        want, got = float(right(*play.inputs[call][0])), answer(play, call)
        value = ANYTHING if got is not None and close(got, want) else want
        return [Seen(value)] * play.case.world

    return Exercise(
        number, name, inputs=lambda case, rank: tuple(case.options.values()),
        expected=expected,
        core=lambda rng: named(core(rng)),
        sturdy=lambda rng: [*named(sturdy(rng)), *again(named(core(rng))[0])],
        fits=lambda case: False, smaller=lambda case: [],
        tolerance=TOLERANCE, in_ranks=False,
        rules=[without_a_word],
        diagnoses=[*diagnoses, NONE_FITS],
    )  # fmt: skip


def again(first: Case) -> list[Case]:
    """The same with twice as much of each argument, by itself and as calls in a row, and once in
    company, where others could be asked."""
    later = tuple({name: 2 * value} for name, value in first.options.items())
    alone = [replace(first, options=first.options | more) for more in later]
    return [*alone, replace(first, calls=1 + len(later), later=later), replace(first, world=2)]


def networks(rng: random.Random, count: int = 15) -> list[tuple]:
    """Drawn arguments: a number of ranks, of bytes, few or many, and a link's α and β."""
    drawn = [(rng.randrange(2, 2000), round(10 ** rng.uniform(0, 9)), *any_link(rng))
             for _ in range(count // 3) for any_link in (link, odd_link, half_known)]  # fmt: skip
    large = rng.randrange(2, 5), round(10 ** rng.uniform(11, 14)), *link(rng)
    small = rng.randrange(2, 5), rng.randrange(1, 9), 10 ** rng.uniform(-12, -10), 1e-14
    return [*drawn, large, small]


def link(rng: random.Random) -> tuple[float, float]:
    """α in seconds and β in seconds a byte, as links have them today."""
    return rng.uniform(1e-6, 1e-4), rng.uniform(1e-12, 1e-9)


def odd_link(rng: random.Random) -> tuple[float, float]:
    """α and β of anything that carries messages, a satellite or a letter."""
    return 10 ** rng.uniform(-9, 2), 10 ** rng.uniform(-13, 1)


def half_known(rng: random.Random) -> tuple[float, float]:
    """α of a network of the lessons, and another one's β."""
    return rng.choice((2e-6, 3e-6, 5e-6, 25e-6)), 10 ** rng.uniform(-13, 1)


def real_number(value: Any) -> float | None:
    """What was returned as a float, or None where it is no real number."""
    if type(value) is torch.Tensor and value.dim() == 0 and value.dtype != torch.bool:
        value = value.item()
    if isinstance(value, float):
        return float.__float__(value)  # of a subclass, too: its own idea of a float is not asked
    if (isinstance(value, int) and not isinstance(value, bool)) or type(value) in _SCALARS:
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return None


def answer(play: Play, call: int = 0) -> float | None:
    """The number that came back from a play, or None."""
    return real_number(play.got(0, call).returned) if play.done else None


def close(got: float, want: float) -> bool:
    return math.isclose(got, want, rel_tol=TOLERANCE, abs_tol=0.0)


def mistake(id: str, hint: str, *formulas: Formula) -> Diagnosis:
    """Diagnosed where every answer is what one and the same of these formulas gives."""
    return Diagnosis(id, hint, lambda e: any(_explains(wrong, e) for wrong in formulas))


def _explains(wrong: Formula, evidence: Evidence) -> bool:
    def holds(play: Play) -> bool:
        try:
            predicted = float(wrong(*play.inputs[0][0]))
        except ZeroDivisionError:
            return raised("ZeroDivisionError")(play)
        got = answer(play)
        return got is not None and close(got, predicted)

    return bool(evidence.failed) and all(map(holds, evidence.plays))


NONE_FITS = Diagnosis("values-differ", "Work this case out with pen and paper, units included, "
                      "and compare.", both(every(lambda p: answer(p) is not None),
                                           some(lambda p: p.case.calls == 1),
                                           every(lambda p: "talks" not in p.kinds())))  # fmt: skip


def rounded(right: Formula, unit: float) -> Diagnosis:
    """Diagnosed where every wrong number is within 0.1% or within ``unit`` of the right one."""

    def near(play: Play) -> bool:
        got, want = answer(play), right(*play.inputs[0][0])
        if got is None or play.case.calls > 1:
            return False
        grids = (10.0**-digits for digits in range(12))
        grid = next((g for g in grids if g <= unit and math.isclose(
            got / g, round(got / g), rel_tol=1e-9, abs_tol=1e-9)), 0.0)  # fmt: skip
        return math.isclose(got, want, rel_tol=1e-3, abs_tol=grid)

    return Diagnosis(
        "rounded", "It agrees to a few digits and then differs: was something rounded on the way, "
        "or computed with fewer digits than a float of Python has?",
        both(some(lambda p: near(p) and right(*p.inputs[0][0]) > 9 * unit),
             every(lambda p: near(p) or p.case.calls > 1)),
    )  # fmt: skip
