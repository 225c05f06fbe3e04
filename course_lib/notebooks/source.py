"""Read a lesson's source; refuse a malformed one in one line that says where.

jupytext reads the cells. What is added here is the line of each, what a header may say, and the
rules that one cell can break by itself; those about several cells are in rules.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_lib.notebooks.ids import header_lines
from course_lib.notebooks.lesson import BEGIN, END, ROLES, Cell, Lesson, LessonError
from course_lib.notebooks.rules import RULES, Broken

_NAME = re.compile(r"\d\d_[a-z][a-z0-9_]*")
_MARKER = re.compile(r"#+\s*(begin|end)\s+solution", re.IGNORECASE)
_NBVAL = re.compile(r"#\s*(NBVAL_|PYTEST_VALIDATE_)")
_OF_AN_ANSWER = {"points": int, "required": bool, "difficulty": int}
_KNOWN = {"id", "tags", "exercise", "role", *_OF_AN_ANSWER}


def read_lesson(path: Path) -> Lesson:
    """The lesson in ``path``; LessonError where something about it is wrong."""
    return parse_lesson(read_text(path), path.stem)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise LessonError(f"{path.name}: not UTF-8 ({error.reason})") from None


def parse_lesson(text: str, name: str) -> Lesson:
    if not _NAME.fullmatch(name):
        raise LessonError(f"{name}.py: a lesson's file is named like 00_hello_ranks.py")
    try:
        cells = tuple(_cells(text))
        for rule in RULES:
            rule(cells)
    except Broken as broken:
        raise LessonError(f"{name}.py, line {broken.line}: {broken.sentence}") from None
    return Lesson(name, cells)


def _cells(text: str) -> Iterator[Cell]:
    try:
        import jupytext
    except ImportError:
        raise LessonError(
            "jupytext is missing, and lessons are read with it: pip install -r requirements-dev.txt"
        ) from None
    starts = header_lines(text)
    found = jupytext.reads(text, fmt="py:percent").cells
    if len(found) != len(starts) or not starts:
        # Text above the first header, or a header inside a string: no line would be certain.
        line = starts[0] if starts else 1
        raise Broken(line, "every cell starts with a line '# %%', and no other line does")
    for cell, line in zip(found, starts, strict=True):
        given = dict(cell.metadata)
        given.pop("lines_to_next_cell", None)
        yield _cell(cell.cell_type, cell.source, given, line)


def _cell(kind: str, text: str, given: dict[str, Any], line: int) -> Cell:
    if kind not in ("markdown", "code"):
        raise Broken(line, f"a {kind} cell: only markdown and code are used")
    if unknown := sorted(set(given) - _KNOWN):
        raise Broken(line, f"'{unknown[0]}' is no part of a cell's header")
    tags = tuple(given.get("tags", ()))
    if any(tag == "raises-exception" or tag.startswith("nbval") for tag in tags):
        raise Broken(line, f"tags {list(tags)}: a cell that has to fail uses 'with expect(…)'")
    if _NBVAL.search(text):
        raise Broken(line, "an nbval marker: every output is compared, see notebooks/sanitize.cfg")
    _check_markers(text, line)
    if "exercise" in given:
        return _exercise_cell(kind, text, given, line, tags)
    if extra := {"role", *_OF_AN_ANSWER} & set(given):
        raise Broken(line, f"'{min(extra)}' without an exercise")
    if BEGIN in text:
        raise Broken(line, 'a solution outside of a cell with role="answer"')
    return Cell(str(given.get("id", "")), kind, text, line, tags=tags)


def _exercise_cell(kind: str, text: str, given: dict, line: int, tags: tuple) -> Cell:
    exercise, role = str(given["exercise"]), given.get("role")
    where = f"exercise {exercise}: "
    if not exercise.isidentifier():
        raise Broken(line, f"exercise {exercise!r} is not named like its function")
    if kind != "code" or role not in ROLES:
        raise Broken(line, where + 'a code cell with role="answer", "try" or "check"')
    if "id" in given:
        raise Broken(line, where + "its cells get their ids from its name and their roles")
    values = {key: given[key] for key in _OF_AN_ANSWER if key in given}
    if role != "answer" and (values or BEGIN in text):
        what = f"'{min(values)}'" if values else "a solution"
        raise Broken(line, where + f"{what} belongs into its answer cell")
    if role == "answer":
        for key, wanted in _OF_AN_ANSWER.items():
            if type(values.get(key)) is not wanted:
                raise Broken(line, where + f"its answer cell needs {key}= ({wanted.__name__})")
    return Cell(f"{exercise}-{role}", kind, text, line, exercise, role, tags=tags, **values)


def _check_markers(text: str, line: int) -> None:
    """Markers come in pairs, alone on their lines, with something between them."""
    opened, content = 0, False
    for number, row in enumerate(text.splitlines(), line + 1):
        mark = row.strip()
        if not _MARKER.search(mark):
            content = content or bool(mark)
        elif mark not in (BEGIN, END):
            raise Broken(number, f"'{mark}': the markers are '{BEGIN}' and '{END}'")
        elif mark == BEGIN and opened:
            raise Broken(number, f"BEGIN SOLUTION again; line {opened} has no END SOLUTION yet")
        elif mark == BEGIN:
            opened, content = number, False
        elif not opened:
            raise Broken(number, "END SOLUTION without a BEGIN SOLUTION")
        elif not content:
            raise Broken(number, "an empty solution")
        else:
            opened = 0
    if opened:
        raise Broken(opened, "BEGIN SOLUTION without an END SOLUTION")
