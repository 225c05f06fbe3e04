"""What an exercise is: cases by level, what is expected, rules, and the mistakes we know.

    RING = Exercise(
        "04.1", "ring_all_reduce",
        inputs=lambda case, rank: (tensor(case, rank),),
        expected=lambda play, call: …,        # one Seen a rank
        core=lambda rng: cases(range(2, 6), [20, 60]),
        sturdy=lambda rng: cases([1, 8], [0, 7]),
        budget=[neighbours_only, …],
        diagnoses=[Diagnosis("divides", hint, when), …],
    )

A lesson's module makes its exercises and hands each to ``declare``.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from course_lib.checks.cases import Case, smaller
from course_lib.errors import CheckFailed, CourseError
from course_lib.trace import Run

POINTS = {"core": 60, "budget": 30, "sturdy": 10}
BY_OPTIMIZERS = ("torch._dynamo",)  # what the first step of an optimizer needs; a second or more


@dataclass
class Seen:
    """What one rank has after one call: what came back, and its arguments as they are then.

    ``notes`` are things that values do not show: memory that is shared, an entry of a list
    that has been replaced. An expected Seen has ``args`` None where they do not matter.
    """

    returned: Any = None
    args: tuple | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing that is wrong in a play. ``rank`` is None where it is about all of them."""

    kind: str
    text: str = ""
    rank: int | None = None
    got: Any = None
    want: Any = None
    call: int = 0


@dataclass(eq=False)
class Play:
    """One case, played once: what went in, what came out, what was said on the way."""

    case: Case
    inputs: list[list[tuple]]  # [call][rank]
    seen: list[list[Seen]] = field(default_factory=list)  # [call][rank]
    run: Run | None = None
    error: CourseError | None = None
    world: str = "simulated"
    findings: list[Finding] = field(default_factory=list)
    broken: list[Finding] = field(default_factory=list)  # of the budget

    @property
    def done(self) -> bool:
        """Every rank came to its end."""
        return self.error is None and self.run is not None

    def got(self, rank: int, call: int = 0) -> Seen:
        return self.seen[call][rank]

    def given(self, rank: int, call: int = 0) -> Any:
        """A rank's first argument as it was before the call: the tensor or model it is about."""
        return self.inputs[call][rank][0]

    def left(self, rank: int, call: int = 0) -> Any:
        """The same argument as it is after the call, in a play that is done."""
        args = self.got(rank, call).args
        assert args is not None
        return args[0]

    def kinds(self) -> set[str]:
        return {f.kind for f in self.findings + self.broken}


@dataclass(frozen=True)
class Evidence:
    """All plays of one level, those that fail first among equals: what a diagnosis looks at."""

    level: str
    plays: list[Play]
    failed: list[Play]

    @property
    def passed(self) -> list[Play]:
        return [p for p in self.plays if not any(p is f for f in self.failed)]

    def of(self, play: Play) -> Evidence:
        """What this play alone would show: the others that fail are left out, but for its twin,
        which has codes for numbers.
        """
        twins = [
            p
            for p in self.failed
            if p.case.numbers == "codes"
            and p is not play
            and (p.case.world, p.case.length) == (play.case.world, play.case.length)
        ]
        return Evidence(self.level, [*self.passed, play, *twins], [play, *twins])


@dataclass(frozen=True)
class Diagnosis:
    """A mistake that people make: how to know it from the evidence, and what to say.

    ``when`` has to be true of this mistake and of no other. Where in doubt, let it be false:
    no diagnosis is better than a wrong one.
    """

    id: str
    hint: str
    when: Callable[[Evidence], bool]


Rule = Callable[[Play], Iterable[Finding]]
Cases = Callable[[random.Random], list[Case]]


def no_cases(_: random.Random) -> list[Case]:
    """The cases of a level that an exercise does not have."""
    return []


@dataclass(frozen=True)
class Exercise:
    """An exercise as its lesson declares it; how it is checked is the engine's business.

    ``inputs(case, rank)`` makes one rank's arguments. ``expected(play, call)`` says what every
    rank must have after that call: it may look at what was returned where several answers are
    right. ``rules`` belong to core, ``budget`` is a level of its own and is counted on every
    play that came to its end. ``tolerance`` is relative, 0 for exactly equal. ``fits`` says
    which smaller cases may stand for a failing one of core. ``needs`` are modules that torch would
    import in the middle of a play, on its time: they are imported before.
    """

    number: str
    name: str
    inputs: Callable[[Case, int], tuple]
    expected: Callable[[Play, int], list[Seen]]
    core: Cases
    sturdy: Cases = no_cases
    rules: Sequence[Rule] = ()
    budget: Sequence[Rule] = ()
    diagnoses: Sequence[Diagnosis] = ()
    fits: Callable[[Case], bool] = lambda case: case.world > 1 and case.length > 0
    smaller: Callable[[Case], Iterable[Case]] = smaller
    tolerance: float = 0.0
    in_ranks: bool = True  # False: a plain function, which is called and asks nobody
    told: Callable[[Case], bool] | None = None  # where the answer hangs on what others say; as fits
    needs: tuple[str, ...] = ()
    length_is: str = "length"  # what a case's length is called; "" where it means nothing

    @property
    def title(self) -> str:
        return f"{self.number} {self.name}"

    @property
    def points(self) -> dict[str, int]:
        """By level; what a level would be worth that this exercise has not goes to core."""
        has = {"core": True, "budget": bool(self.budget), "sturdy": self.sturdy is not no_cases}
        mine = {level: POINTS[level] for level in POINTS if has[level]}
        mine["core"] += 100 - sum(mine.values())
        return mine

    def describe(self, case: Case) -> str:
        """The case in words: ``3 ranks, length 7, float64, strided``."""
        words = []
        if self.in_ranks:
            words.append("1 rank" if case.world == 1 else f"{case.world} ranks")
            words += [f"{self.length_is} {case.length}"] if self.length_is else []
        words += [w for w in (case.dtype, case.layout) if w not in ("float32", "contiguous")]
        words += [f"{name} {value}" for name, value in case.options.items()]
        words += self._later(case)
        words += ["messages of uneven speed"] if case.jitter else []
        words += ["zeros in every message"] if case.blank else []
        return ", ".join(words + ([f"called {case.calls} times"] if case.calls > 1 else []))

    def _later(self, case: Case) -> list[str]:
        """Which options the later calls have, where they are not those of the call before."""
        calls = [case.call(number) for number in range(case.calls)]
        options = [{"dtype": call.dtype} | call.options for call in calls]
        changes = [
            {name: now[name] for name in options[0] if now[name] != before[name]}
            for before, now in pairwise(options)
        ]
        return [f"then {name} {value}" for change in changes for name, value in change.items()]


_declared: dict[str, Exercise] = {}


def declare(exercise: Exercise) -> Exercise:
    """Make the exercise known by its function's name."""
    known = _declared.setdefault(exercise.name, exercise)
    if known.number != exercise.number:
        raise ValueError(f"two exercises are called {exercise.name}: {known.number} and this one")
    _declared[exercise.name] = exercise
    return exercise


def exercises() -> dict[str, Exercise]:
    """All exercises by name. Each module ``lesson_…`` of this package declares its own."""
    package = importlib.import_module("course_lib.checks")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("lesson_"):
            importlib.import_module(f"course_lib.checks.{module.name}")
    return _declared


def find(name: str) -> Exercise:
    """The exercise of this name, or one line that says which name may have been meant."""
    known = exercises()
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    more = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(known))}."
    raise CheckFailed(f"No exercise is called {name}; {more}")
