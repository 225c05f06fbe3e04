"""Judge a play: compare what the ranks have with what they should have, then apply the rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from course_lib.checks.compare import facet, leaves, left, same, same_kind, stray_writes
from course_lib.checks.exercise import Exercise, Finding, Play
from course_lib.checks.play import Broken
from course_lib.errors import CourseError, Deadlock, Hang, Hazard, Mismatch, RankDied, RankFailed

KINDS: dict[type, str] = {
    Deadlock: "deadlock", Hang: "hang", Hazard: "hazard", Mismatch: "mismatch",
    RankDied: "died", RankFailed: "raised", Broken: "broken", CourseError: "refused",
}  # fmt: skip
NOTES = {
    "shared": "the tensors that are returned share memory with one another",
    "argument's memory": "what is returned shares memory with an argument",
    "earlier memory": "what is returned shares memory with what an earlier call returned",
    "other entries": "the list has more entries than it had, or fewer",
}
REPLACED = "{} is another tensor now, or has other memory, than before the call"


def judge(exercise: Exercise, play: Play) -> None:
    """Fill in ``play.findings`` and, for what came to its end, ``play.broken``."""
    if play.error is not None:
        play.findings = [Finding(KINDS.get(type(play.error), "raised"), str(play.error))]
        return
    play.findings = list(_values(exercise, play))
    if play.world == "simulated":
        play.findings += [f for rule in exercise.rules for f in rule(play)]
        budget = exercise.budget if play.case.calls == 1 else ()  # limits are those of one call
        play.broken = [f for rule in budget for f in rule(play)]


def heard_of_nobody(play: Play) -> bool:
    """Whether a play whose messages carried zeros is right; its finding then says so."""
    if not play.done or {f.kind for f in play.findings} & {"returned", "type", "left"}:
        return False
    play.findings = [Finding("beside", "everything is right, and no message said what others have")]
    return True


def _values(exercise: Exercise, play: Play) -> Iterator[Finding]:
    for call in range(play.case.calls):
        for rank, want in enumerate(exercise.expected(play, call)):
            got, before = play.seen[call][rank], left(play.inputs[call][rank])
            found = [*_returned(got.returned, want.returned, rank, exercise)]
            for old, now, then in zip(before, got.args, want.args, strict=True):
                found += _argument(old, now, then, rank, exercise)
            found += (Finding("memory", NOTES.get(note, REPLACED.format(note)), rank)
                      for note in got.notes if facet(note) not in exercise.free)  # fmt: skip
            yield from (replace(finding, call=call) for finding in found)


def _returned(got: Any, want: Any, rank: int, exercise: Exercise) -> Iterator[Finding]:
    if "returned" not in exercise.free and not same(got, want, exercise.tolerance):
        kind = "type" if not same_kind(got, want) else "returned"
        yield Finding(kind, "returns", rank, got, want)


def _argument(old: Any, now: Any, then: Any, rank: int, exercise: Exercise) -> Iterator[Finding]:
    old, now, then = (
        {k: v for k, v in value.items() if facet(k) not in exercise.free}
        if isinstance(value, dict) else value for value in (old, now, then))  # fmt: skip
    if not same(now, then, exercise.tolerance):
        meant = not same(old, then, exercise.tolerance)
        yield Finding("left" if meant else "argument changed", "has", rank, now, then)
    for (_, a), (_, b) in zip(leaves(old), leaves(now), strict=False):
        if isinstance(a, Tensor) and isinstance(b, Tensor) and stray_writes(a, b):
            yield Finding("stray", "memory between the tensor's elements has changed", rank)
