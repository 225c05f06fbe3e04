"""What an exercise is: one function of all ranks' arguments at once, its mistakes, and its cases.

The right function gets, by rank, a fresh copy of the arguments. It works in place on them, as the
ranks should, and returns what each rank returns: a list by rank, or None for all. A mistake is the
same function with a knob turned. A check plays both, and no message is needed for it; see
``docs/adding-an-exercise.md``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from torch import Tensor

from course_check.cases import Case, Words, features
from course_check.compare import FACETS, facet, same
from course_check.harness.kept import Kept
from course_check.harness.seen import Seen, leaves, left
from course_lib.errors import CourseError
from course_lib.trace import Run, Trace
from course_sim import Network

# What a mistake may raise: it then has no result that an answer could have.
IMPOSSIBLE = (ArithmeticError, RuntimeError, LookupError, ValueError)
POINTS = {"core": 60, "budget": 30, "sturdy": 10}
Right = Callable[[list[tuple]], list | None]


def untouched(given: list[tuple]) -> None:
    """Every rank leaves its arguments as they were."""


class After(list[Seen]):
    """What every rank has after one call, by rank. It is empty for a mistake without a result."""

    @cached_property
    def facets(self) -> dict[str, dict[str, Any]]:
        """By facet, each leaf by its rank and the way to it."""
        out: dict[str, dict[str, Any]] = {name: {} for name in FACETS}
        for rank, one in enumerate(self):
            for path, leaf in leaves(one.args):
                out[facet(path)][f"{rank}{path}"] = leaf
            out["returned"] |= {f"{rank}{path}": leaf for path, leaf in leaves(one.returned)}
        return out


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing that is wrong in a play. ``rank`` is None if it is about all ranks."""

    kind: str
    text: str = ""
    rank: int | None = None
    got: Any = None
    want: Any = None
    old: Any = None  # what it was before the call
    call: int = 0


def _count_writes(args: tuple) -> int:
    """A number that grows when somebody writes into one of these tensors, even the same values."""
    return sum(leaf._version for _, leaf in leaves(args) if isinstance(leaf, Tensor))


class Prepared:
    """The arguments of all ranks in every call of a case, and what would come of them.

    They are the same for every answer, so they are made once.
    """

    def __init__(self, by_call: list[list[tuple]]) -> None:
        self.by_call = by_call  # [call][rank]
        self._outcomes: dict[tuple[Right, int], After] = {}

    @cached_property
    def by_rank(self) -> list[Kept]:
        """For each rank the arguments of every call."""
        return [Kept(list(calls)) for calls in zip(*self.by_call, strict=True)]

    def outcome(self, fn: Right, call: int = 0) -> After:
        """What would come of the call if ``fn`` were what the ranks do."""
        if (fn, call) not in self._outcomes:
            given = [mine.value[call] for mine in self.by_rank]
            before = list(map(_count_writes, given))
            try:
                returned = fn(given) or [None] * len(given)
            except IMPOSSIBLE:
                returned = given = before = []
            ends = [
                Seen(r, left(tuple(a)), ("written",) * (_count_writes(a) > v))
                for r, a, v in zip(returned, given, before, strict=True)
            ]
            self._outcomes[fn, call] = After(ends)
        return self._outcomes[fn, call]


@dataclass(eq=False)
class Play:
    """One case, played once: what went in, what came out, what was said on the way."""

    case: Case
    prepared: Prepared
    seen: list[After] = field(default_factory=list)  # [call][rank]
    expected: list[After] = field(default_factory=list)  # the same, as it should be
    run: Run | None = None
    error: CourseError | None = None
    caught: str = ""  # of an answer that is a test: how it has failed
    where: str = "simulated"
    findings: list[Finding] = field(default_factory=list)
    over_budget: list[Finding] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # facets that are not what they should be

    @property
    def inputs(self) -> list[list[tuple]]:
        """[call][rank]: the arguments. Nobody may change them."""
        return self.prepared.by_call

    @property
    def done(self) -> bool:
        """Every rank came to its end."""
        return self.error is None and self.run is not None

    @property
    def ranks(self) -> range:
        return range(self.case.world)

    @property
    def trace(self) -> Trace:
        return self.run.trace if self.run else Trace()

    @property
    def returned(self) -> list[Any]:
        """What came back from the first call, by rank. It is empty if a rank came to no end."""
        return [seen.returned for seen in self.seen[0]] if self.done else []

    def got(self, rank: int, call: int = 0) -> Seen:
        return self.seen[call][rank]

    def given(self, rank: int, call: int = 0) -> Any:
        """A rank's first argument as it was before the call: the tensor or model it is about."""
        return self.inputs[call][rank][0]

    def before(self, rank: int, call: int = 0) -> tuple:
        """A rank's arguments before the call, as data that can be compared."""
        return self.prepared.outcome(untouched, call)[rank].args

    def comes_to(self, fn: Right) -> list[After]:
        """What would come of each call if ``fn`` were what the ranks do."""
        return [self.prepared.outcome(fn, call) for call in range(self.case.calls)]

    def kinds(self) -> set[str]:
        """The kinds of all findings, and the kind of an error (a hazard has one)."""
        said = {f.kind for f in self.findings + self.over_budget}
        return said | {getattr(self.error, "kind", "")} - {""}


@dataclass(frozen=True)
class Mistake:
    """A mistake that people make: what would come of it, and what to say.

    Each of ``wrong`` computes what an answer with this mistake leaves, for all ranks at once.
    """

    id: str
    hint: str
    wrong: tuple[Right, ...]


@dataclass(frozen=True)
class Diagnosis:
    """A mistake that shows in the play itself: in an error, or in what was said on the way.

    ``when`` has to be true of plays with this mistake and of no others.
    """

    id: str
    hint: str
    when: Callable[[Play], bool]


Rule = Callable[[Play], Iterable[Finding]]
Cases = Callable[[random.Random], list[Case]]


def no_cases(_: random.Random) -> list[Case]:
    """The cases of a level that an exercise does not have."""
    return []


class Lives(Protocol):
    """Processes of their own beside a play, in which an answer is killed and started again."""

    def folders(self) -> AbstractContextManager[list[str]]:
        """Two folders for what the processes write; made in the notebook's process."""

    def start(self, load: Callable[[], Any], places: list[str]) -> None:
        """Fork the process that has the lives from the one that plays, which has no threads yet."""


@dataclass(frozen=True)
class Exercise:
    """An exercise as its lesson declares it; how it is checked is not its business.

    ``inputs(case, rank)`` makes one rank's arguments. ``rules`` belong to core, ``budget`` is a
    level of its own, held on the cases of core and on ``regimes``, which it alone has.
    ``settle(want, got)`` says what is wanted where several outcomes are right: it may change
    ``want``. Facets in ``free`` are not compared. ``tolerance`` is relative, 0 for exactly equal.
    ``blank`` is False if the answer does not depend on what others send. ``ddp``: models are
    wrapped in DistributedDataParallel, in the rank. ``lives``: starts processes in which an
    argument plays the answer, and in which it may be killed.
    """

    number: str
    name: str
    right: Right
    inputs: Callable[[Case, int], tuple]
    core: Cases
    sturdy: Cases = no_cases
    mistakes: Sequence[Mistake] = ()
    diagnoses: Sequence[Diagnosis] = ()
    rules: Sequence[Rule] = ()
    budget: Sequence[Rule] = ()
    regimes: Cases = no_cases  # for the budget alone
    free: Sequence[str] = ()
    settle: Callable[[list[Seen], list[Seen]], list[Seen]] | None = None
    special: Callable[[Case], set[str]] = lambda case: set()  # features beyond the usual ones
    words: Words = field(default_factory=dict)  # for features of its own
    tolerance: float = 0.0
    in_ranks: bool = True  # False: a plain function, which is called and asks nobody
    blank: bool = True
    ddp: bool = False
    lives: Lives | None = None
    length_is: str = "length"  # what a case's length is called

    @property
    def title(self) -> str:
        return f"{self.number} {self.name}"

    @cached_property
    def some_cases(self) -> list[Case]:
        """The cases of one draw, of all levels."""
        levels = (self.core, self.sturdy, self.regimes)
        return [case for level in levels for case in level(random.Random(0))]

    @property
    def on_gpus(self) -> bool:
        """Whether it is played on modelled GPUs, which ranks that are processes do not have."""
        return any(case.backend == "nccl" for case in self.some_cases)

    @property
    def points(self) -> dict[str, int]:
        """The points of each level. Core also gets those of a level that the exercise lacks."""
        has = {"core": True, "budget": bool(self.budget), "sturdy": self.sturdy is not no_cases}
        mine = {level: POINTS[level] for level in POINTS if has[level]}
        mine["core"] += 100 - sum(mine.values())
        return mine

    def features(self, case: Case) -> set[str]:
        usual = features(case, self.words) if self.in_ranks else set()
        return usual | self.special(case)

    def differing(self, these: Sequence[After], those: Sequence[After]) -> set[str]:
        """The facets in which some call came to something else."""
        return {
            name
            for one, other in zip(these, those, strict=False)
            for name in FACETS
            if name not in self.free
            and not same(one.facets[name], other.facets[name], self.tolerance)
        }

    def describe(self, case: Case) -> str:
        """The case in words: ``3 ranks, length 7, float64, strided``."""
        words = []
        if self.in_ranks:
            words.append(f"{case.world} rank{'s' * (case.world > 1)}")
            if any(some.length for some in self.some_cases):  # else it means nothing
                words.append(f"{self.length_is} {case.length}")
        words += [w for w in (case.dtype, case.layout) if w not in ("float32", "contiguous")]
        words += [f"{name} {value}" for name, value in case.options.items()]
        own = {"length": self.length_is}
        words += [f"then {own.get(k, k)} {v}" for more in case.later for k, v in more.items()]
        words += ["on modelled GPUs" if case.backend == "nccl" else "on gloo"] * self.on_gpus
        words += [f"links of {case.bandwidth / 1e6:g} MB/s"] * (case.bandwidth < Network.bandwidth)
        words += ["messages of uneven speed"] * bool(case.jitter)
        words += ["zeros in every message"] * case.blank
        words += [f"called {case.calls} times"] * (case.calls > 1)
        return ", ".join(words)
