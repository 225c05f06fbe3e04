"""The two notebooks of a Lesson: the learner's, and the solved one before it is executed.

Metadata of a cell in the learner's copy:

    given        a hash of the text as it was handed out: whoever differs from it was edited
    exercise, role, points, required, difficulty       on the cells of an exercise
    tags         raises-exception on the same cells: Run All goes on past what is not written yet

A solved copy has the same cells with the same ids, without ``given`` and that tag.

Links and pictures are written as seen from notebooks/src, which is as deep as notebooks/solutions;
learners' copies (notebooks/ and work/) lie one folder higher, and their links are shortened by one.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.notebooks.lesson import Cell, Lesson

_LINK = re.compile(r"""(\]\(|\b(?:src|href)=["'])\.\./\.\./""")


def fingerprint(text: str) -> str:
    """Twelve hexadecimal digits that stand for a text, white space at its end aside."""
    return hashlib.sha256(text.rstrip().encode()).hexdigest()[:12]


def learner_copy(lesson: Lesson) -> NotebookNode:
    blocks = {answer.exercise: answer for answer in lesson.answers}
    cells = []
    for cell in lesson.cells:
        metadata = _metadata(cell, blocks)
        if cell.exercise:
            metadata["tags"] = [*cell.tags, "raises-exception"]
        text = cell.stub if cell.role == "answer" else cell.text
        if cell.kind == "markdown":
            text = _LINK.sub(r"\1../", text)
        cells.append(_node(cell, text, {"given": fingerprint(text)} | metadata))
    return _notebook(lesson, cells)


def solved_copy(lesson: Lesson) -> NotebookNode:
    blocks = {answer.exercise: answer for answer in lesson.answers}
    return _notebook(lesson, [_node(c, c.solved, _metadata(c, blocks)) for c in lesson.cells])


def _metadata(cell: Cell, blocks: dict[str, Cell]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"tags": list(cell.tags)} if cell.tags else {}
    if cell.exercise:
        answer = blocks[cell.exercise]
        metadata |= {
            "exercise": cell.exercise,
            "role": cell.role,
            "points": answer.points,
            "required": answer.required,
            "difficulty": answer.difficulty,
        }
    return metadata


def _node(cell: Cell, text: str, metadata: dict[str, Any]) -> NotebookNode:
    make = nbformat.v4.new_code_cell if cell.kind == "code" else nbformat.v4.new_markdown_cell
    return make(text, id=cell.id, metadata=metadata)


def _notebook(lesson: Lesson, cells: list[NotebookNode]) -> NotebookNode:
    metadata = {
        "course": {"lesson": lesson.name},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def to_text(notebook: NotebookNode) -> str:
    """The file's content: the same bytes for the same notebook."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"
