"""What the cells of a grading notebook call. This runs in the kernel that nbval watches.

The kernel is the judge's: it holds answers as strings, hands them to processes behind walls, and
writes one record an exercise. It never compiles or runs a line of an answer.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.grading.judge import Order, Timing, judge
from course_lib.grading.namespace import CellText
from course_lib.grading.walls import Limits
from course_lib.grading.zygote import VARIABLE
from course_lib.notebooks.folders import replace_file

_order: dict[str, Any] = {}
_answers: dict[str, str] = {}


class NotFullMarks(CourseError):
    """The cell of an exercise that has not got full marks: nbval counts it as failed."""


@dataclass(frozen=True)
class Answered:
    """Stands for an answer: its name, and text."""

    exercise: str
    source: str


def begin(file: str = "order.json") -> None:
    """Read the order that lies beside the notebook."""
    _order.update(json.loads(Path(file).read_text()))


def answer(exercise: str, source: str) -> Answered:
    _answers[exercise] = source
    return Answered(exercise, source)


def check(answered: Answered) -> None:
    """Judge one exercise and write its record down. Raises NotFullMarks."""
    record = judge(
        Order(answered.exercise, answered.source, _before(answered.exercise, own=True),
              _before(answered.exercise, own=False)),
        os.environ[VARIABLE],
        Limits(**_order["limits"]),
        Timing(**_order["timing"]),
        pictures=_order["pictures"],
    )  # fmt: skip
    folder = Path(_order["records"])
    replace_file(folder / f"{answered.exercise}.json", json.dumps(record))
    print(f"{record['title']}: {record['points']} of 100")
    if not record["passed"]:
        raise NotFullMarks(record["diagnosis"] or record["reason"] or "not passed")


def _before(exercise: str, own: bool) -> list[CellText]:
    """The lesson's cells before this exercise: with the student's answers, or the instructor's."""
    cells = []
    for row in _order["context"]:
        name = row["exercise"]
        if name == exercise:
            break
        if name and own:
            if name in _answers:
                cells.append(CellText(row["file"], _answers[name], name))
            continue
        cells.append(CellText(row["file"], row["source"], name))
    return cells
