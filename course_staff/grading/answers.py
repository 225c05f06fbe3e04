"""From a submitted notebook to answers: text by exercise, and what was wrong with the rest.

A submission is data. Its outputs, its checks, its metadata and its given cells count for nothing;
what is looked for is the source of one cell an exercise:

    1. a code cell whose id or metadata says that it is the answer         (copied and moved, too)
    2. any code cell that defines a function or class of that name          (retyped, ids lost)

Among several the last one that is written counts, as it would after Run All. Of a file that is cut
off, or spoilt in the middle, the cells before that place are read. Nothing here runs or imports a
word of it, and nothing in a notebook can stop the others from being graded.
"""

from __future__ import annotations

import ast
import json
import re
import symtable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_check.namespace import binds
from course_staff.authoring.lesson import STUB
from course_staff.manifest import Item, Manifest

LARGEST_FILE, LARGEST_ANSWER = 50_000_000, 100_000  # bytes, characters
DEEPEST = 80  # levels of Python in Python; a chain of as many ``elif`` has as many
NOT_GRADED = "not graded here: it is checked on modelled GPUs, and does not count"
_NBVAL = re.compile(r"#\s*(NBVAL_|PYTEST_VALIDATE_)", re.IGNORECASE)
_MAGIC = re.compile(r"^\s*(%|!|\?|[\w.]+\?\s*$)")


@dataclass(frozen=True)
class Found:
    """The answer to one exercise; ``problem`` says why there is none to judge."""

    exercise: str
    source: str = ""
    problem: str = ""
    note: str = ""  # what was done about copies and lost ids


@dataclass(frozen=True)
class Submission:
    """All that is taken from a submitted file."""

    lesson: str  # empty where none could be recognised
    answers: dict[str, Found]
    problem: str = ""
    note: str = ""  # about the whole file


class Unreadable(Exception):
    """The file is no notebook."""


@dataclass(frozen=True)
class _Cell:
    kind: str
    source: str
    id: str
    exercise: str
    role: str


def read(path: Path, manifest: Manifest) -> Submission:
    """The answers in a file. Never raises because of what is in it."""
    try:
        text = _text(path)
        try:
            data, note = json.loads(text), ""
        except (ValueError, RecursionError, MemoryError) as error:
            kind = "no JSON" if isinstance(error, ValueError) else type(error).__name__
            data, note = _first_cells(text, kind)
        cells, course = _cells(data)
    except Unreadable as error:
        return Submission("", {}, str(error))
    lesson = _lesson(cells, course, path, manifest)
    if lesson is None:
        return Submission("", {}, note or "no exercise of this release is in it")
    items = manifest.lessons[lesson]
    return Submission(lesson, {i.exercise: _answer(i, cells) for i in items}, note=note)


def _text(path: Path) -> str:
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise Unreadable("a link or no ordinary file")
        if path.stat().st_size > LARGEST_FILE:
            raise Unreadable(f"larger than {LARGEST_FILE // 1_000_000} MB")
        return path.read_bytes().decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None


def _first_cells(text: str, trouble: str) -> tuple[dict, str]:
    """The whole cells at the beginning of a notebook that is no JSON, and a note about it."""
    start = re.search(r'"cells"\s*:\s*\[', text)
    cells: list[Any] = []
    at = start.end() if start else len(text)
    decoder = json.JSONDecoder()
    between = re.compile(r"[\s,]*")
    while at < len(text):
        at = between.match(text, at).end()  # type: ignore[union-attr]
        try:
            cell, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError, MemoryError):
            break
        cells.append(cell)
    if not cells:
        raise Unreadable(f"not a notebook: {trouble}")
    return {"cells": cells}, f"the file is damaged: only its first {len(cells)} cells can be read"


def _cells(data: Any) -> tuple[list[_Cell], str]:
    if not isinstance(data, dict):
        raise Unreadable("not a notebook: no JSON object")
    raw = data.get("cells")
    if not isinstance(raw, list):
        raise Unreadable("not a notebook: it has no cells")
    course = _dict(_dict(data.get("metadata")).get("course")).get("lesson")
    return [_cell(c) for c in raw if isinstance(c, dict)], course if type(course) is str else ""


def _dict(value: Any) -> dict:
    return value if isinstance(value, dict) else {}


def _cell(raw: dict) -> _Cell:
    source = raw.get("source")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    meta = _dict(raw.get("metadata"))
    words = [raw.get("cell_type"), source, raw.get("id"), meta.get("exercise"), meta.get("role")]
    kind, text, id_, exercise, role = (w if isinstance(w, str) else "" for w in words)
    return _Cell(kind, text.replace("\r\n", "\n").replace("\r", "\n"), id_, exercise, role)


def _lesson(cells: list[_Cell], course: str, path: Path, manifest: Manifest) -> str | None:
    """Which lesson it is: by its answers, then by what it says of itself, then by its name."""
    counts = {
        lesson: sum(any(_candidates(item, cells)) for item in items)
        for lesson, items in manifest.lessons.items()
    }
    best = max(counts, key=lambda lesson: (counts[lesson], lesson == course), default=None)
    if best is not None and counts[best]:
        return best
    if course in manifest.lessons:
        return course
    return next((name for name in manifest.lessons if path.stem.startswith(name)), None)


def _candidates(item: Item, cells: list[_Cell]) -> tuple[list[_Cell], list[_Cell]]:
    """Cells that may hold the answer: those that are marked, and others that define it."""
    answer = (item.exercise, "answer")
    marked = [c for c in cells if c.id == item.answer_cell or (c.exercise, c.role) == answer]
    defines = re.compile(rf"^[ \t]*(async[ \t]+def|def|class)[ \t]+{item.exercise}\b", re.M)
    named = [c for c in cells if c.kind == "code" and defines.search(c.source)]
    return marked, [c for c in named if c not in marked]


def _written(cells: list[_Cell], item: Item) -> list[_Cell]:
    code = [c for c in cells if c.kind == "code" and STUB not in c.source]
    return [c for c in code if item.exercise in c.source]


def _answer(item: Item, cells: list[_Cell]) -> Found:
    if not item.graded:
        return Found(item.exercise, problem=NOT_GRADED)
    marked, named = _candidates(item, cells)
    written = _written(marked, item) or _written(named, item)
    if not written:
        return Found(item.exercise, problem=_why_not([*marked, *named]))
    last, note = written[-1], ""
    if len({c.source.strip() for c in written}) > 1:
        note = f"{len(written)} cells answer it, and they differ: the last one counts"
    elif last.id != item.answer_cell and last.exercise != item.exercise:
        note = "found by the function's name: its cell has lost its id"
    return Found(item.exercise, last.source, refused(last.source, item.exercise), note)


def _why_not(found: list[_Cell]) -> str:
    if not found:
        return "its cell is missing"
    if any(STUB in c.source for c in found):
        return "not written yet"
    if all(c.kind != "code" for c in found):
        return "its cell is no code cell any more"
    if not any(c.source.strip() for c in found):
        return "its cell is empty"
    return "its cell does not define it"


def refused(source: str, exercise: str) -> str:
    """Why a source is not judged; empty where it is."""
    if len(source) > LARGEST_ANSWER:
        return f"longer than {LARGEST_ANSWER:,} characters"
    if found := _NBVAL.search(source):
        line = source[: found.start()].count("\n") + 1
        return f"line {line} has a marker of nbval, which has no place in an answer"
    try:
        tree = ast.parse(source)
        symtable.symtable(source, "<answer>", "exec")  # finds what only compiling would
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        lines = [n for n, line in enumerate(source.splitlines(), 1) if _MAGIC.match(line)]
        if lines:
            return f"line {lines[0]} is a command to the notebook, not Python: take it out"
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        return f"it is not Python{where}: {getattr(error, 'msg', type(error).__name__)}"
    if _deep(tree):
        return f"it is nested more than {DEEPEST} levels deep"
    if "get_ipython" in set(map(_word, ast.walk(tree))):
        return "it talks to the notebook by get_ipython"
    if exercise not in set().union(*map(binds, tree.body)):
        return f"it defines no {exercise}"
    return ""


def _deep(tree: ast.AST) -> bool:
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return bool(level)


def _word(node: ast.AST) -> str | None:
    return getattr(node, "id", getattr(node, "attr", None))
