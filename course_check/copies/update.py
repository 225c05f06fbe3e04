"""python -m course_lib update: carry what a learner wrote into a newer lesson.

Each cell of a learner's notebook remembers a hash of the text it was handed out with (``given``).
So for every cell it is known, without the old lesson, who changed what:

    learner    lesson      result
    ───────    ───────     ─────────────────────────────────────────────────────────
    no         yes or no   the new lesson's cell
    yes        no          the learner's
    yes        yes         an answer: the learner's. Any other: the new one, and named
    yes        cell gone   named: it could not be placed
    own cell   –           kept, after the cell that it stood after

What is named is in the backup, which is made before anything is written.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_check.copies.folders import Folders, LessonError, replace_file
from course_check.copies.notebook import fingerprint, to_text
from course_check.copies.progress import LEGEND, MAP, Map

_SHOW_MAP = """\
# Run this cell (Shift+Enter) to see what you have solved since.
from course_check.copies.progress import Map
Map.found()"""


def main(args: Namespace) -> int:
    """Exit code 0, or 1 where a copy could not be read."""
    try:
        return _bring_up_to_date(Folders.found(), args.missing)
    except OSError as error:
        where = error.filename or "work/"
        raise LessonError(f"{where} cannot be written: {error.strerror}") from None


def _bring_up_to_date(folders: Folders, only_missing: bool) -> int:
    """Update every copy; a lesson without one is copied."""
    failed = False
    for lesson in sorted(folders.learner.glob("*.ipynb")):
        copy = folders.work / lesson.name
        if not copy.exists():
            replace_file(copy, lesson.read_text(encoding="utf-8"))
            print(f"work/{copy.name}: new")
        elif not only_missing:
            try:
                for line in update(copy, lesson, datetime.now()):
                    print(line)
            except LessonError as error:
                failed = True
                print(error, file=sys.stderr)
    write_map(folders.work / MAP)
    return int(failed)


def write_map(page: Path) -> None:
    """Bring the map that ``make lab`` opens up to date. Cells that a learner has added stay."""
    make = nbformat.v4
    shown = make.new_output("display_data", {"text/markdown": Map.found()._repr_markdown_()})
    hidden = {"jupyter": {"source_hidden": True}}
    course = make.new_code_cell(_SHOW_MAP, id="map", metadata=hidden, outputs=[shown])
    cells = [course, make.new_markdown_cell(LEGEND, id="legend")]
    if page.exists():
        with suppress(LessonError, OSError):
            cells = [course if c.get("id") == "map" else c for c in _read(page).cells]
    notebook = make.new_notebook(cells=cells, metadata=kernel_metadata())
    with suppress(OSError):  # nobody is kept from the lessons by a map that cannot be written
        replace_file(page, to_text(notebook))


def kernel_metadata() -> dict[str, Any]:
    """What a front end stores when the kernel has told it what it is. Stored from the start, the
    page is not a changed one as soon as it is opened."""
    from ipykernel.ipkernel import IPythonKernel  # in a notebook it has been imported long ago

    spec = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return {"kernelspec": spec, "language_info": IPythonKernel.language_info}


def update(copy: Path, lesson: Path, now: datetime) -> Iterator[str]:
    """Bring ``copy`` to the state of ``lesson``; yields what to tell the learner."""
    before = _read(copy)
    merged = merge(before, _read(lesson))
    place = f"work/{copy.name}"
    if merged.notebook == before:
        yield f"{place}: up to date"
        return
    backup = copy.parent / "backup" / f"{copy.stem}.{now:%Y-%m-%d-%H%M%S-%f}.ipynb"
    backup.parent.mkdir(exist_ok=True)
    with open(backup, "xb") as file:  # no backup is ever overwritten
        file.write(copy.read_bytes())
    replace_file(copy, to_text(merged.notebook))
    carried = f"{merged.carried} cell{'s' * (merged.carried != 1)} of yours carried over"
    yield f"{place}: updated, {carried}; the old one is work/{backup.relative_to(copy.parent)}"
    yield from (f"  not placed: {line}" for line in merged.unplaced)


def _read(path: Path) -> NotebookNode:
    try:
        return nbformat.read(path, as_version=4)
    except (ValueError, LookupError, AttributeError, nbformat.ValidationError) as error:
        reason = str(error).splitlines()[0][:80]
        raise LessonError(f"{path.parent.name}/{path.name} is not a notebook: {reason}") from None


@dataclass
class Merged:
    """A notebook in which both sides' work is, and what found no place in it."""

    notebook: NotebookNode
    carried: int = 0
    unplaced: list[str] = field(default_factory=list)


def merge(mine: NotebookNode, new: NotebookNode) -> Merged:
    """The new lesson with the learner's work in it. Neither argument is changed."""
    result = Merged(nbformat.from_dict(new))
    ours = {_key(cell): cell for cell in mine.cells}
    cells = result.notebook.cells
    for cell in cells:
        if (old := ours.get(_key(cell))) is not None:
            _carry(old, cell, result)
    _place_own_cells(mine, {_key(cell) for cell in cells}, result)
    return result


def _key(cell: NotebookNode) -> str:
    """The same cell of an older lesson has the same key, also where an editor dropped the ids."""
    exercise, role = cell.metadata.get("exercise"), cell.metadata.get("role")
    own = f"{exercise}-{role}" if exercise and role else ""
    return str(cell.get("id") or own)


def _carry(old: NotebookNode, cell: NotebookNode, result: Merged) -> None:
    """Put the learner's version into ``cell``, a cell of the new lesson, where that is right."""
    given = old.metadata.get("given")
    if fingerprint(old.source) != given and old.source.rstrip() != cell.source.rstrip():
        if given != cell.metadata.get("given") and cell.metadata.get("role") != "answer":
            result.unplaced.append(f"{_title(old)}: yours and the lesson's have both changed")
            return
        cell.source = old.source
        result.carried += 1
    if cell.cell_type == "code" == old.cell_type and cell.source == old.source:
        cell.outputs, cell.execution_count = old.outputs, old.execution_count


def _place_own_cells(mine: NotebookNode, known: set[str], result: Merged) -> None:
    """Insert the learner's own cells; name the edited ones whose place is gone."""
    cells = result.notebook.cells
    place = 0
    for old in mine.cells:
        if (key := _key(old)) in known:
            place = [_key(cell) for cell in cells].index(key) + 1
        elif "given" not in old.metadata:
            cells.insert(place, nbformat.from_dict(old))
            place += 1
            result.carried += 1
        elif fingerprint(old.source) != old.metadata["given"]:
            result.unplaced.append(f"{_title(old)}: the lesson has this cell no more")


def _title(cell: NotebookNode) -> str:
    """How a learner recognises a cell: its exercise, or its first line."""
    if exercise := cell.metadata.get("exercise"):
        return f"{exercise}, {cell.metadata.get('role')} cell"
    lines = [line.strip() for line in cell.source.splitlines() if line.strip()]
    return f"the cell that begins '{lines[0][:50]}'" if lines else "an emptied cell"
