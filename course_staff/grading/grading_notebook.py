"""The notebook that nbval runs: answers as strings, the checks of those that are to be judged.

    begin()                                      given cells, limits, where records go
    my_share = answer("my_share", 'def my_sha…') a string: nobody runs it here
    grade(my_share)                              in the lesson's check cell, under its id

``write`` makes it; the other half of this module is what its cells call, in the kernel that nbval
watches. The kernel is the judge's: it hands answers to processes behind walls, and writes one
record an exercise. It never compiles or runs a line of an answer. Cells of the story are not run:
they are the instructor's, and tested elsewhere.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_check.copies.folders import LessonError, replace_file
from course_check.namespace import CellText
from course_lib import CourseError
from course_staff.grading.processes import VARIABLE, call
from course_staff.grading.walls import Limits

if TYPE_CHECKING:
    from course_staff.grading.answers import Submission
    from course_staff.manifest import Item

BEGIN = "from course_staff.grading.grading_notebook import answer, begin, grade\n\nbegin()"
SETTINGS = "settings.json"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


# ---- as it is written ----------------------------------------------------------------------------


def write(
    folder: Path,
    submission: Submission,
    items: list[Item],
    solved: Path,
    wanted: Collection[str],
    settings: dict[str, Any],
) -> Path:
    """The notebook and its settings, in a folder that holds nothing else: all answers of the
    submission, and the checks of those that are wanted."""
    cells = [_cell("grading-begin", BEGIN, role="begin")]
    for item in items:
        name = item.exercise
        found = submission.answers[item.exercise]
        if found.problem:
            continue
        text = f"{name} = answer({name!r}, {found.source!a})"
        cells.append(_cell(item.answer_cell, text, role="answer", exercise=name))
        if name in wanted:
            cells.append(_cell(item.check_cell, f"grade({name})", role="check", exercise=name))
    path = folder / "grading.ipynb"
    made = {"cells": cells, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(made))
    settings |= {"context": lesson_cells(solved, {item.exercise for item in items})}
    (folder / SETTINGS).write_text(json.dumps(settings))
    return path


def _cell(id: str, text: str, **metadata: str) -> dict[str, Any]:
    cell = {"cell_type": "code", "id": id, "metadata": metadata, "source": text}
    return cell | {"outputs": [], "execution_count": None}


def lesson_cells(solved: Path, exercises: Collection[str]) -> list[dict[str, str]]:
    """The lesson's cells in order, as data: given ones, and the reference answers."""
    try:
        lesson = json.loads(solved.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        what = f"the solved notebook is needed for grading ({error})"
        raise LessonError(f"{solved}: {what}") from None
    out = []
    for cell in lesson["cells"]:
        role = cell["metadata"].get("role", "")
        exercise = cell["metadata"]["exercise"] if role else ""
        if cell["cell_type"] == "code" and role in ("", "answer") and exercise in {"", *exercises}:
            file = f"{exercise or cell['id']}.py"
            out.append({"file": file, "source": "".join(cell["source"]), "exercise": exercise})
    return out


# ---- as it runs ----------------------------------------------------------------------------------

_settings: dict[str, Any] = {}
_answers: dict[str, str] = {}


class NotJudged(CourseError):
    """The machine could not play an answer: nbval counts the cell as failed, and nobody a mark."""


class NotFullMarks(CourseError):
    """The cell of an exercise that has not got full marks: nbval counts it as failed."""


def begin() -> None:
    """Read the settings that lie beside the notebook."""
    _settings.update(json.loads(Path(SETTINGS).read_text()))


def answer(exercise: str, source: str) -> str:
    """Keep the text; what stands for the answer is its name."""
    _answers[exercise] = source
    return exercise


def grade(name: str) -> None:
    """Stands for course_lib's ``check`` in the lesson's cell: judge one exercise and write its
    record down. Raises NotFullMarks or NotJudged."""
    record = _judged(name, _before(name, own=True), _before(name, own=False))
    # If the grading has been killed, its ranks have ended with it, and what was found about the
    # answer must not be kept: then nobody answers at the door, and this raises.
    call(os.environ[VARIABLE]).close()
    _write(name, record | {"by": _settings["by"][name]})
    print(f"{name}: {record['points']} of 100")
    if not record["passed"]:
        raise NotFullMarks(record["diagnosis"] or record["reason"] or "not passed")


def _write(name: str, record: dict[str, Any]) -> None:
    replace_file(Path(_settings["records"]) / f"{name}.json", json.dumps(record))


def _judged(name: str, own: list[CellText], reference: list[CellText]) -> dict[str, Any]:
    from course_check.play import CannotCheck

    # This imports torch, and all of the simulator.
    from course_staff.grading.carried_player import Order, grade_answer

    order = Order(name, _answers[name], own, reference, _settings["secret"])
    try:
        return grade_answer(
            order, os.environ[VARIABLE], Limits(**_settings["limits"]), _settings["pictures"]
        )
    except (CannotCheck, OSError, MemoryError) as error:  # the machine's fault, and nobody's zero
        _write(name, {"not_judged": f"{type(error).__name__}: {error}".partition("\n")[0]})
        raise NotJudged(str(error)) from error
    except Exception as error:
        traceback.print_exc()  # into nbval's log
        why = f"what its ranks have said could not be judged ({type(error).__name__})"
        return {"passed": False, "points": 0, "written": True, "diagnosis": None, "reason": why}


def _before(exercise: str, own: bool) -> list[CellText]:
    """The lesson's cells before this exercise: with the student's answers, or the instructor's."""
    cells = []
    for row in _settings["context"]:
        if row["exercise"] == exercise:
            break
        if not (own and row["exercise"]):
            cells.append(CellText(**row))
        elif row["exercise"] in _answers:
            cells.append(CellText(**row | {"source": _answers[row["exercise"]]}))
    return cells
