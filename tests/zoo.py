"""Right answers to each exercise, and wrong ones: edits of a right one.

tests/answers/<exercise>.py has right answers, functions or classes that are named by how, and then
WRONG, a text with the edits of each: of ``one_by_one`` below ``== one_by_one``. A row has a name, a
diagnosis without the number of its lesson, why people write it, and edits. An edit stands on a line
of its own, or as in a patch:

    sums, sum: all_reduce is taken for a mean
    ~ what it has => what stands there instead
    skips_none, only-without-gradient: a None is passed over
      a line of it, which stays
    - what it has below
    + what stands there instead

An edit replaces what occurs exactly once. An answer with several edits makes several mistakes.
Wrong answers that are edits of ``solution`` are edits of the lesson's own, which then is the first
right answer; the file's imports are those that it needs.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from course_check.harness.answer import GIVEN
from course_exercises.catalogue import find
from course_staff.authoring.source import read_lesson

ANSWERS = Path(__file__).parent / "answers"
SOURCES = Path(__file__).parents[1] / "notebooks" / "src"
ROW = re.compile(r"^(\w+), (\S+): ((?:[^~ +-].*\n)+)((?:[~ +-].*\n)+)", re.M)
EDIT = re.compile(r"~ .*\n|(?:[ -].*\n)+(?:\+.*\n)*")


@dataclass(frozen=True)
class Wrong:
    """A wrong answer, the diagnosis that it must get, and why people write it."""

    exercise: str
    name: str
    of: str
    diagnosis: str
    why: str
    edits: tuple[tuple[str, str], ...]

    def source(self, but: int | None = None) -> str:
        """Its text; ``but`` leaves one of its edits out."""
        text = right(self.exercise)[self.of]
        for number, (old, new) in enumerate(self.edits):
            assert text.count(old) == 1, f"{self.exercise}, {self.name}: {old!r} is not there once"
            text = text if number == but else text.replace(old, new)
        return text


@cache
def read(exercise: str) -> tuple[str, dict[str, str]]:
    """The text of an exercise's right answers, and by right answer the rows of its edits."""
    text, _, rows = (ANSWERS / f"{exercise}.py").read_text().partition('WRONG = """\n')
    _, *parts = re.split(r"^== (\w+)\n", rows.removesuffix('"""\n'), flags=re.M)
    return text, dict(zip(parts[::2], parts[1::2], strict=True))


@cache
def right(exercise: str) -> dict[str, str]:
    """By name, the text of each right answer: the file's imports, and the function or class by its
    own name."""
    text, rows = read(exercise)
    body = ast.parse(text).body
    lines = text.splitlines(keepends=True)

    def of(node: ast.stmt) -> str:
        return "".join(lines[node.lineno - 1 : node.end_lineno])

    imports = "".join(of(n) for n in body if isinstance(n, ast.Import | ast.ImportFrom))
    answers = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    own = {n.name: f"{imports}\n\n{of(n)}".replace(n.name, exercise) for n in answers}
    if "solution" in rows:
        return {"solution": f"{imports}\n\n{solution(exercise)}\n", **own}
    return own


def solution(exercise: str) -> str:
    """The text of the lesson's own answer, below those of the lesson that it calls."""
    [lesson] = SOURCES.glob(f"{find(exercise).number[:2]}_*.py")
    texts = {cell.exercise: cell.solved for cell in read_lesson(lesson).answers}
    below = [text for name, text in texts.items() if f"{name}(" in texts[exercise] != text]
    return "\n\n".join([*below, texts[exercise]])


@cache
def wrong(exercise: str) -> dict[str, Wrong]:
    lesson = find(exercise).number[:2]
    found = {}
    for of, rows in read(exercise)[1].items():
        assert not ROW.sub("", rows).strip(), f"{exercise}: {ROW.sub('', rows)}"
        for name, diagnosis, why, edits in ROW.findall(rows):
            assert "".join(EDIT.findall(edits)) == edits, f"{exercise}, {name}: an odd +"
            pairs = tuple(map(read_edit, EDIT.findall(edits)))
            found[name] = Wrong(exercise, name, of, f"{lesson}.{diagnosis}", why, pairs)
    return found


def read_edit(lines: str) -> tuple[str, str]:
    """What an edit looks for, and what stands there instead."""
    if lines.startswith("~"):
        old, _, new = lines[2:-1].partition(" =>")
        return old, new.removeprefix(" ")
    old, new = (
        "\n".join(line[2:] for line in lines.splitlines() if line[0] in kept)
        for kept in (" -", " +")
    )
    return old, new


def function(exercise: str, name: str = "") -> Any:
    """A right answer by its name, or the first, to be called."""
    known = right(exercise)
    names = dict(GIVEN)
    exec(known[name or next(iter(known))], names)
    return names[exercise]


def source(exercise: str, name: str) -> str:
    """The text of any answer, by its name."""
    known = right(exercise)
    return known[name] if name in known else wrong(exercise)[name].source()
