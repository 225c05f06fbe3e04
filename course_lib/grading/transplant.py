"""The notebook that nbval runs: the pristine lesson's checks, and the answers as strings.

    begin()                                      given cells, limits, where records go
    my_share = answer("my_share", 'def my_sha…') a string: nobody runs it here
    check(my_share)                              the lesson's own cell, its id and its text

Cells of the story are not run: they are the instructor's, and tested elsewhere.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.grading.answers import Submission
from course_lib.grading.manifest import Item
from course_lib.notebooks.lesson import LessonError

BEGIN = "from course_lib.grading.cells import answer, begin, check\n\nbegin()"


def pristine(path: Path) -> NotebookNode:
    """The instructor's solved notebook of a lesson."""
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:
        reason = str(error).splitlines()[:1]
        raise LessonError(f"{path}: the solved notebook is needed for grading ({reason})") from None


def transplant(submission: Submission, items: list[Item], lesson: NotebookNode) -> NotebookNode:
    """The grading notebook: for each exercise that has an answer, its answer and its check."""
    checks = {cell.id: cell.source for cell in lesson.cells}
    cells = [_cell("grading-begin", BEGIN, role="begin")]
    for item in items:
        found = submission.answers[item.exercise]
        if found.problem:
            continue
        text = f"{item.exercise} = answer({item.exercise!r}, {found.source!a})"
        cells.append(_cell(item.answer_cell, text, role="answer", exercise=item.exercise))
        check = checks.get(item.check_cell, "")
        if not re.fullmatch(rf"\s*check\(\s*{item.exercise}\s*\)\s*", check):
            check = f"check({item.exercise})"
        cells.append(_cell(item.check_cell, check, role="check", exercise=item.exercise))
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec})


def _cell(id: str, text: str, **metadata: str) -> NotebookNode:
    return nbformat.v4.new_code_cell(text, id=id, metadata=metadata)


def context(lesson: NotebookNode, items: list[Item]) -> list[dict[str, str]]:
    """The lesson's cells in order, as data: given ones, and the reference answers."""
    wanted = {item.exercise for item in items}
    out = []
    for cell in lesson.cells:
        if cell.cell_type != "code":
            continue
        exercise, role = cell.metadata.get("exercise", ""), cell.metadata.get("role", "")
        if role == "answer" and exercise in wanted:
            out.append({"file": f"{exercise}.py", "source": cell.source, "exercise": exercise})
        elif not role:
            out.append({"file": f"{cell.id}.py", "source": cell.source, "exercise": ""})
    return out


def write(folder: Path, notebook: NotebookNode, order: dict[str, Any]) -> Path:
    """The notebook and its order, in a folder that holds nothing else."""
    path = folder / "grading.ipynb"
    nbformat.write(notebook, path)
    (folder / "order.json").write_text(json.dumps(order))
    return path
