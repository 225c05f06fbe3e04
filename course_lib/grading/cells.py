"""What the cells of a grading notebook call. This runs in the kernel that nbval watches.

The kernel is the judge's: it holds answers as strings, hands them to processes behind walls, and
writes one record an exercise. It never compiles or runs a line of an answer.

A record is kept by what it depends on, and the same question is not asked twice:

    exercise, the text of the answer, every statement it runs with (its own earlier answers, and the
    reference's), limits, timing, the hash of what judges      ──► work/.verdicts/HASH.json

That costs nobody anything: cases are drawn by the secret of the grading and the answer's text, so
one that is right by luck gets no second throw. What a busy machine may have spoilt is not kept: a
verdict that is not full marks, unless it came in less time than would let one play be too slow.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError
from course_lib.grading.namespace import CellText, namespace
from course_lib.grading.processes import VARIABLE
from course_lib.grading.walls import Limits
from course_lib.notebooks.folders import replace_file

if TYPE_CHECKING:
    from course_lib.grading.judge import Order

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
    name = answered.exercise
    own, reference = _before(name, own=True), _before(name, own=False)
    kept = Path(_order["verdicts"]) / f"{_question(answered, own, reference)}.json"
    if kept.exists():
        record = json.loads(kept.read_text())
    else:
        from course_lib.grading.judge import Order  # torch, and all of the simulator

        record = _judged(Order(name, answered.source, own, reference, _order["secret"]))
        if _holds(record):
            replace_file(kept, json.dumps(record))
    replace_file(Path(_order["records"]) / f"{name}.json", json.dumps(record))
    print(f"{record['title']}: {record['points']} of 100")
    if not record["passed"]:
        raise NotFullMarks(record["diagnosis"] or record["reason"] or "not passed")


def _judged(order: Order) -> dict[str, Any]:
    from course_lib.grading.judge import Timing, judge

    limits, longest = Limits(**_order["limits"]), _order["timing"]
    # One play waits longer by itself, as long as others compute.
    timing = Timing(longest["play"], _order["stretch"] * longest["exercise"])
    try:
        return judge(order, os.environ[VARIABLE], limits, timing, _order["pictures"])
    except Exception as error:
        import traceback

        traceback.print_exc()  # into nbval's log
        why = f"what its ranks have said could not be judged ({type(error).__name__})"
        return {"exercise": order.exercise, "title": order.exercise, "passed": False, "points": 0,
                "written": True, "levels": {}, "diagnosis": None, "reason": why}  # fmt: skip


def _question(answered: Answered, own: list[CellText], reference: list[CellText]) -> str:
    """A hash of all that the verdict depends on."""
    cell = CellText(f"{answered.exercise}.py", answered.source, answered.exercise)
    spaces = [namespace(answered.exercise, cell, before) for before in (own, reference)]
    ours = ("limits", "timing", "pictures", "code", "secret")
    facts = [answered.exercise, [asdict(s) | {"uses": sorted(s.uses)} for s in spaces],
             *(_order[key] for key in ours)]  # fmt: skip
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _holds(record: dict[str, Any]) -> bool:
    """Whether it would be the same on any day, and nobody else can have written it."""
    if str(record["diagnosis"]).endswith("breaks-the-check"):
        return False  # no fault of the answer's, such as a fork server that was ended meanwhile
    quick = not record["reason"] and record["seconds"] < _order["timing"]["play"]
    return (record["passed"] or quick) and "files" not in record["undefended"]


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
