"""A class of thirty: what each has handed in, and what that is worth, by ``check`` and by rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import zoo

from course_lib.beside.in_rank import Answer
from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import exercises, find

TESTS = Path(__file__).resolve().parents[1]
NOTEBOOKS = TESTS.parent / "notebooks"
LESSONS = ("01_point_to_point", "04_ring_all_reduce", "05_gradient_averaging")


def each(lesson: str, members: Callable[[str], dict], which: int) -> dict[str, str]:
    """For each exercise of a lesson the first, or last, of its right or wrong answers."""
    names = [name for name, e in exercises().items() if e.number[:2] == lesson[:2]]
    return {name: list(members(name))[which] for name in names}


RIGHT = {lesson: each(lesson, zoo.right, 0) for lesson in LESSONS}
OTHERWISE = {lesson: each(lesson, zoo.right, -1) for lesson in LESSONS}
WRONG = {lesson: each(lesson, zoo.wrong, 0) for lesson in LESSONS}
IN_PART = {
    "01_point_to_point": {"exchange": "strided"},
    "04_ring_all_reduce": {"ring_all_reduce": "classic_mended"},
    "05_gradient_averaging": {"average_gradients": "skips_none"},
}
ATTACK = {"01_point_to_point": "exchange/pretends_to_wait",
          "04_ring_all_reduce": "ring_all_reduce/forged_events",
          "05_gradient_averaging": "average_gradients/says_it_is_done"}  # fmt: skip
EARNED = {"ring_all_reduce/forged_events": 0.6}  # by what is honest in it
HANGS = "\n    while True:\n        pass\n"
CRASHES = "\n    import ctypes\n    ctypes.CDLL(None).abort()\n"


@dataclass
class Handed:
    """One submission: its text, and by exercise the share of its points and a word of the why."""

    name: str
    text: str
    predicted: dict[str, tuple[float, str]] = field(default_factory=dict)  # empty: no notebook


@cache
def by_check(exercise: str, name: str) -> tuple[float, str]:
    """What ``check`` says of a member of the zoo."""
    text = Answer(exercise, source=zoo.source(exercise, name), file=f"{exercise}.py")
    verdict = verdict_on(find(exercise), text)
    return verdict.points / 100, verdict.diagnosis or ""


def notebook(lesson: str, answers: dict[str, str]) -> dict[str, Any]:
    """The learner's copy with these answers in its cells."""
    made = json.loads((NOTEBOOKS / f"{lesson}.ipynb").read_text())
    for cell in made["cells"]:
        exercise = cell["metadata"].get("exercise")
        if cell["metadata"].get("role") == "answer" and exercise in answers:
            cell["source"] = answers[exercise].splitlines(True)
    return made


def header(exercise: str) -> str:
    """The exercise's own ``def`` line."""
    lines = zoo.source(exercise, RIGHT[lesson_of(exercise)][exercise]).splitlines()
    return next(line for line in lines if line.startswith(f"def {exercise}"))


def lesson_of(exercise: str) -> str:
    return next(lesson for lesson, right in RIGHT.items() if exercise in right)


def roster() -> Iterator[Handed]:
    """Ten submissions of each lesson."""
    for lesson in RIGHT:
        for kind, (answers, said) in kinds(lesson).items():
            yield Handed(f"{lesson[:2]}_{kind}", json.dumps(notebook(lesson, answers)), said)
        yield cut_off(lesson)
        yield Handed(f"{lesson[:2]}_no_notebook", "PK\x03\x04 this is a zip file")


Answers = tuple[dict[str, str], dict[str, tuple[float, str]]]  # their texts, and what they earn


def kinds(lesson: str) -> dict[str, Answers]:
    first, second = list(RIGHT[lesson])[:2]
    attack = ATTACK[lesson]
    tricks = (TESTS / "attacks" / f"{attack}.py").read_text()
    return {
        "right": from_zoo(lesson, {}),
        "right_otherwise": from_zoo(lesson, OTHERWISE[lesson]),
        "untouched": ({}, dict.fromkeys(RIGHT[lesson], (0.0, "not written yet"))),
        "wrong": from_zoo(lesson, WRONG[lesson]),
        "in_part": from_zoo(lesson, IN_PART[lesson]),
        "hangs": spoilt(lesson, first, header(first) + HANGS, 0.0, f"{lesson[:2]}.hangs"),
        "crashes": spoilt(
            lesson, second, header(second) + CRASHES, 0.0, "a rank's process was lost"
        ),
        "attacks": spoilt(lesson, attack.split("/")[0], tricks, EARNED.get(attack, 0.0), ""),
    }


def from_zoo(lesson: str, chosen: dict[str, str]) -> Answers:
    """These members of the zoo, and right answers to the other exercises."""
    names = RIGHT[lesson] | chosen
    said = {e: by_check(e, n) if e in chosen else (1.0, "") for e, n in names.items()}
    return {e: zoo.source(e, n) for e, n in names.items()}, said


def spoilt(lesson: str, exercise: str, text: str, share: float, why: str) -> Answers:
    answers, said = from_zoo(lesson, {})
    return answers | {exercise: text}, said | {exercise: (share, why)}


def cut_off(lesson: str) -> Handed:
    """The upload ended before the second answer."""
    first, second = list(RIGHT[lesson])[:2]
    text = json.dumps(notebook(lesson, from_zoo(lesson, {})[0]))
    said = dict.fromkeys(RIGHT[lesson], (0.0, "its cell is missing")) | {first: (1.0, "")}
    name = f"{lesson[:2]}_cut_off"
    return Handed(name, text[: text.index(f'"{second}-answer"') + 30], said)
