"""A class: what each has handed in, and what that is worth. Here is what becomes of whole
notebooks; what is said of each wrong answer, the soak test of the zoo asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import zoo

from course_exercises.catalogue import exercises

TESTS = Path(__file__).resolve().parents[1]
NOTEBOOKS = TESTS.parent / "notebooks"
ATTACKS = {  # by lesson, and what is honest in it
    "01_point_to_point": ("exchange/pretends_to_wait", 0.0),
    "04_ring_all_reduce": ("ring_all_reduce/forged_events", 0.6),
    "05_gradient_averaging": ("average_gradients/says_it_is_done", 0.0),
}
HANGS = "\n    while True:\n        pass\n"
CRASHES = "\n    import ctypes\n    ctypes.CDLL(None).abort()\n"


@dataclass
class Handed:
    """One submission: its text, and by exercise the share of its points and a word of the why."""

    name: str
    text: str
    predicted: dict[str, tuple[float, str]] = field(default_factory=dict)  # empty: no notebook


def notebook(lesson: str, answers: dict[str, str]) -> str:
    """The learner's copy with these answers in its cells."""
    made = json.loads((NOTEBOOKS / f"{lesson}.ipynb").read_text())
    for cell in made["cells"]:
        exercise = cell["metadata"].get("exercise")
        if cell["metadata"].get("role") == "answer" and exercise in answers:
            cell["source"] = answers[exercise].splitlines(True)
    return json.dumps(made)


def right(lesson: str) -> dict[str, str]:
    """A right answer to each exercise of a lesson."""
    names = [name for name, e in exercises().items() if e.number[:2] == lesson[:2]]
    return {name: zoo.source(name, next(iter(zoo.right(name)))) for name in names}


def roster() -> Iterator[Handed]:
    """Seven submissions of each lesson."""
    for lesson, (attack, earned) in ATTACKS.items():
        number, answers = lesson[:2], right(lesson)
        (first, second), attacked = list(answers)[:2], attack.split("/")[0]
        full = dict.fromkeys(answers, (1.0, ""))
        untouched = dict.fromkeys(answers, (0.0, "not written yet"))
        tricks = (TESTS / "attacks" / f"{attack}.py").read_text()
        hangs, crashes = header(first, answers) + HANGS, header(second, answers) + CRASHES
        lost = "a rank's process was lost"
        kinds = {
            "right": (answers, full),
            "untouched": ({}, untouched),
            "hangs": (answers | {first: hangs}, full | {first: (0.0, f"{number}.hangs")}),
            "crashes": (answers | {second: crashes}, full | {second: (0.0, lost)}),
            "attacks": (answers | {attacked: tricks}, full | {attacked: (earned, "")}),
        }
        for kind, (given, said) in kinds.items():
            yield Handed(f"{number}_{kind}", notebook(lesson, given), said)
        text = notebook(lesson, answers)  # the upload ended before the second answer
        cut = text[: text.index(f'"{second}-answer"') + 30]
        missing = dict.fromkeys(answers, (0.0, "its cell is missing"))
        yield Handed(f"{number}_cut_off", cut, missing | {first: (1.0, "")})
        yield Handed(f"{number}_no_notebook", "PK\x03\x04 this is a zip file")


def header(exercise: str, answers: dict[str, str]) -> str:
    """The exercise's own ``def`` line."""
    lines = answers[exercise].splitlines()
    return next(line for line in lines if line.startswith(f"def {exercise}"))
