"""Judge a play: compare what the ranks have with what they should have, then apply the rules."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from course_lib.checks.compare import FACETS, facet, leaves, left, same, same_kind, stray_writes
from course_lib.checks.exercise import Exercise, Finding, Outcome, Play
from course_lib.checks.play import Broken
from course_lib.errors import CourseError, Deadlock, Hang, Hazard, Mismatch, RankDied

KINDS: dict[type, str] = {  # by exact class: a plain CourseError says that something cannot travel
    Deadlock: "deadlock", Hang: "hang", Hazard: "hazard", Mismatch: "mismatch",
    RankDied: "died", Broken: "broken", CourseError: "refused",
}  # fmt: skip
NOTES = {  # any other note is the name of a tensor; diagnose looks for words of these texts
    "shared": "the tensors that are returned share memory with one another",
    "argument's memory": "what is returned shares memory with an argument",
    "earlier memory": "what is returned shares memory with what an earlier call returned",
}
REPLACED = "{} is another tensor now, or has other memory, than before the call"


def judge(exercise: Exercise, play: Play) -> None:
    """Fill in ``play.findings`` and, for what came to its end, ``wrong`` and ``over_budget``."""
    if play.error is not None:
        play.findings = [Finding(KINDS.get(type(play.error), "raised"), str(play.error))]
        return
    play.expected = [_expected(exercise, play, call) for call in range(play.case.calls)]
    wrong = set().union(*map(exercise.differing, play.seen, play.expected))
    play.wrong = [name for name in FACETS if name in wrong]
    play.findings = [f for call in range(play.case.calls) for f in _in_call(exercise, play, call)]
    if play.where == "simulated":
        play.findings += [f for rule in exercise.rules for f in rule(play)]
        budget = exercise.budget if play.case.calls == 1 else ()  # limits are those of one call
        play.over_budget = [f for rule in budget for f in rule(play)]


def right_with_zeros(play: Play) -> bool:
    """Whether a play is right although its messages carried zeros."""
    return play.done and not {f.kind for f in play.findings} & {"returned", "type", "left"}


def _expected(exercise: Exercise, play: Play, call: int) -> Outcome:
    right = play.prepared.outcome(exercise.right, call)
    if exercise.settle is None:
        return right
    return Outcome(exercise.settle(copy.deepcopy(list(right)), play.seen[call]))


def _in_call(exercise: Exercise, play: Play, call: int) -> Iterator[Finding]:
    for rank, want in enumerate(play.expected[call]):
        got, before = play.seen[call][rank], left(play.inputs[call][rank])
        found: list[Finding] = []
        if "returned" not in exercise.free:
            found += _returned(got.returned, want.returned, exercise.tolerance)
        for args in zip(before, got.args, want.args, strict=True):
            found += _argument(exercise, *(_counted(exercise, arg) for arg in args))
        found += [Finding("memory", NOTES.get(note, REPLACED.format(note)))
                  for note in got.notes if facet(note) not in exercise.free]  # fmt: skip
        yield from (replace(finding, rank=rank, call=call) for finding in found)


def _counted(exercise: Exercise, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: v for name, v in value.items() if facet(name) not in exercise.free}


def _returned(got: Any, want: Any, tolerance: float) -> Iterator[Finding]:
    if not same(got, want, tolerance):
        yield Finding("returned" if same_kind(got, want) else "type", "returns", got=got, want=want)


def _argument(exercise: Exercise, before: Any, got: Any, want: Any) -> Iterator[Finding]:
    if "left" not in exercise.free and not same(got, want, exercise.tolerance):
        kind = "argument changed" if same(before, want, exercise.tolerance) else "left"
        yield Finding(kind, "has", got=got, want=want)
    for (_, a), (_, b) in zip(leaves(before), leaves(got), strict=False):
        if isinstance(a, Tensor) and isinstance(b, Tensor) and stray_writes(a, b):
            yield Finding("stray", "memory between the tensor's elements has changed")
