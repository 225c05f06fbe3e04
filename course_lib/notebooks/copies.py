"""The two notebooks of a Lesson: the learner's, and the solved one before it is executed.

Metadata of a cell in the learner's copy:

    given        a hash of the text as it was handed out: whoever differs from it was edited
    exercise, role, points, required, difficulty       on the cells of an exercise
    tags         raises-exception on the same cells: Run All goes on past what is not written yet

A solved copy has the same cells with the same ids, without ``given`` and that tag. Both have a cell
more than the source of a lesson of the course, after the cover (alone.py).

Links and pictures are written as seen from notebooks/src, which is as deep as notebooks/solutions;
learners' copies (notebooks/ and work/) lie one folder higher, and their links are shortened by one.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.notebooks.alone import badges, install_cell, with_pictures
from course_lib.notebooks.lesson import Cell, Lesson

_LINK = re.compile(r"""(\]\(|\b(?:src|href)=["'])\.\./\.\./""")


def fingerprint(text: str, digits: int = 12) -> str:
    """Hexadecimal digits that stand for a text, white space at its end aside."""
    return hashlib.sha256(text.rstrip().encode()).hexdigest()[:digits]


def learner_copy(lesson: Lesson) -> NotebookNode:
    notebook = solved_copy(lesson)
    cells = {cell.id: cell for cell in lesson.cells}
    for node in notebook.cells:
        cell = cells.get(node.id)
        if cell and cell.kind == "markdown":
            text = _LINK.sub(r"\1../", cell.text)
            node.source = with_pictures(text, lesson.root) if lesson.root else text
        if cell and cell.exercise:
            node.source = cell.stub
            node.metadata["tags"] = ["raises-exception"]
    if lesson.root:
        notebook.cells[0].source += badges(lesson.name, lesson.root)
    for node in notebook.cells:
        node.metadata["given"] = fingerprint(node.source)
    return notebook


def solved_copy(lesson: Lesson) -> NotebookNode:
    answers = {answer.exercise: answer for answer in lesson.answers}
    metadata = {
        "course": {"lesson": lesson.name},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    cells = [_node(cell, answers.get(cell.exercise)) for cell in lesson.cells]
    if lesson.root:
        cells.insert(1, install_cell(lesson.name, lesson.root))
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def _node(cell: Cell, answer: Cell | None) -> NotebookNode:
    metadata: dict[str, Any] = {}
    if answer:
        metadata = {
            "exercise": cell.exercise,
            "role": cell.role,
            "points": answer.points,
            "required": answer.required,
            "difficulty": answer.difficulty,
        }
    make = nbformat.v4.new_code_cell if cell.kind == "code" else nbformat.v4.new_markdown_cell
    return make(cell.solved, id=cell.id, metadata=metadata)


def to_text(notebook: NotebookNode) -> str:
    """The file's content: the same bytes for the same notebook."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"
