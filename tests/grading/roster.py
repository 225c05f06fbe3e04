"""A class of thirty: what each has handed in, and what that is worth, by ``check`` and by rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import zoo

from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import find
from course_lib.checks.in_rank import Answer

TESTS = Path(__file__).resolve().parents[1]
NOTEBOOKS = TESTS.parent / "notebooks"
RIGHT = {
    "01_point_to_point": {"exchange": "both_at_once", "pass_right": "by_parity",
                          "in_order": "along_the_row"},
    "04_ring_all_reduce": {"ring_all_reduce": "in_two_halves",
                           "ring_reduce_scatter": "owns_the_next",
                           "ring_all_gather": "from_the_owned_one",
                           "ring_seconds": "in_one_line"},
    "05_gradient_averaging": {"average_gradients": "one_by_one",
                              "broadcast_parameters": "one_by_one",
                              "same_everywhere": "by_digest", "train_step": "sum_over_total"},
}  # fmt: skip
OTHERWISE = {  # right in another way
    "01_point_to_point": {"exchange": "in_a_batch", "in_order": "rank_0_calls_out"},
    "04_ring_all_reduce": {"ring_all_reduce": "to_the_left"},
    "05_gradient_averaging": {"average_gradients": "one_bucket"},
}
WRONG = {
    "01_point_to_point": {"exchange": "send_first", "pass_right": "other_way",
                          "in_order": "nothing"},
    "04_ring_all_reduce": {"ring_all_reduce": "owner", "ring_reduce_scatter": "sends_first",
                           "ring_all_gather": "adds", "ring_seconds": "one_phase"},
    "05_gradient_averaging": {"average_gradients": "sums",
                              "broadcast_parameters": "not_copied_back",
                              "same_everywhere": "keeps_it", "train_step": "stale_and_own_loss"},
}  # fmt: skip
IN_PART = {
    "01_point_to_point": {"exchange": "strided"},
    "04_ring_all_reduce": {"ring_all_reduce": "classic_mended"},
    "05_gradient_averaging": {"average_gradients": "skips_none"},
}
ATTACK = {"01_point_to_point": "exchange/pretends_to_wait",
          "04_ring_all_reduce": "ring_all_reduce/forged_events",
          "05_gradient_averaging": "average_gradients/says_it_is_done"}  # fmt: skip
EARNED = {"ring_all_reduce/forged_events": 0.7}  # by what is honest in it
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
        for kind, make in KINDS.items():
            yield make(f"{lesson[:2]}_{kind}", lesson)


def _right(lesson: str, *but: str) -> dict[str, str]:
    return {e: zoo.source(e, n) for e, n in RIGHT[lesson].items() if e not in but}


def _full(lesson: str) -> dict[str, tuple[float, str]]:
    return dict.fromkeys(RIGHT[lesson], (1.0, ""))


def _first(lesson: str) -> str:
    return next(iter(RIGHT[lesson]))


def right(name: str, lesson: str) -> Handed:
    return Handed(name, json.dumps(notebook(lesson, _right(lesson))), _full(lesson))


def right_otherwise(name: str, lesson: str) -> Handed:
    other = {e: zoo.source(e, n) for e, n in OTHERWISE[lesson].items()}
    return Handed(name, json.dumps(notebook(lesson, _right(lesson) | other)), _full(lesson))


def untouched(name: str, lesson: str) -> Handed:
    none = dict.fromkeys(RIGHT[lesson], (0.0, "not written yet"))
    return Handed(name, json.dumps(notebook(lesson, {})), none)


def wrong(name: str, lesson: str) -> Handed:
    answers = {e: zoo.source(e, n) for e, n in WRONG[lesson].items()}
    said = {e: by_check(e, n) for e, n in WRONG[lesson].items()}
    return Handed(name, json.dumps(notebook(lesson, answers)), said)


def in_part(name: str, lesson: str) -> Handed:
    mine = {e: zoo.source(e, n) for e, n in IN_PART[lesson].items()}
    said = {e: by_check(e, n) for e, n in IN_PART[lesson].items()}
    return Handed(name, json.dumps(notebook(lesson, _right(lesson) | mine)), _full(lesson) | said)


def cut_off(name: str, lesson: str) -> Handed:
    """The upload ended before the second answer."""
    first, second = list(RIGHT[lesson])[:2]
    text = json.dumps(notebook(lesson, _right(lesson)))
    said = dict.fromkeys(RIGHT[lesson], (0.0, "its cell is missing")) | {first: (1.0, "")}
    return Handed(name, text[: text.index(f'"{second}-answer"') + 30], said)


def no_notebook(name: str, lesson: str) -> Handed:
    return Handed(name, "PK\x03\x04 this is a zip file")


def _spoilt(name: str, lesson: str, exercise: str, text: str, share: float, why: str) -> Handed:
    answers = _right(lesson) | {exercise: text}
    said = _full(lesson) | {exercise: (share, why)}
    return Handed(name, json.dumps(notebook(lesson, answers)), said)


def hangs(name: str, lesson: str) -> Handed:
    mine = _first(lesson)
    return _spoilt(name, lesson, mine, header(mine) + HANGS, 0.0, f"{lesson[:2]}.hangs")


def crashes(name: str, lesson: str) -> Handed:
    mine = list(RIGHT[lesson])[1]
    return _spoilt(name, lesson, mine, header(mine) + CRASHES, 0.0, "a rank's process was lost")


def attacks(name: str, lesson: str) -> Handed:
    attack = ATTACK[lesson]
    text = (TESTS / "attacks" / f"{attack}.py").read_text()
    return _spoilt(name, lesson, attack.split("/")[0], text, EARNED.get(attack, 0.0), "")


KINDS: dict[str, Callable[[str, str], Handed]] = {
    f.__name__: f for f in (right, right_otherwise, untouched, wrong, in_part, cut_off, no_notebook,
                            hangs, crashes, attacks)
}  # fmt: skip
