"""Read a lesson's source, and give ids to its cells.

A source is a Python file in the percent format, which editors know. A header line starts a cell:

    # %% [markdown] id="00-3fa9c1"
    # %% id="00-77b2d0"
    # %% exercise="my_share" role="answer" points=10 required=true difficulty=1
    # %% exercise="my_share" role="try"
    # %% exercise="my_share" role="check"

An author writes no id. ``build`` adds one to the headers that lack it; from then on the cell keeps
it, wherever it moves and whatever becomes of its text. Cells of an exercise need none: theirs is
the exercise and the role. Learners' answers, marks and links all hang on these ids.

An exercise is a block of cells with one name, markdown between them allowed: the answer, perhaps a
cell to try it, the check. Solutions stand between markers:

    def my_share(n_items: int) -> range:
        \"\"\"What it does, as a full docstring.\"\"\"
        ### BEGIN SOLUTION
        return range(n_items)
        ### END SOLUTION
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import count, groupby
from pathlib import Path

from course_check.copies.folders import LessonError
from course_check.copies.notebook import fingerprint
from course_staff.authoring.lesson import Cell, Lesson

_HEADER_LINE = re.compile(r"^(# %%(?: .*)?)$", re.M)
_HEADER = re.compile(
    r'# %%(?:(?P<markdown> \[markdown\])?(?: id="(?P<id>[\w-]{1,64})")?'
    r'| exercise="(?P<exercise>[A-Za-z_]\w*)" role="(?:(?P<role>try|check)"'
    r'|answer" points=(?P<points>[1-9]\d*) required=(?P<required>true|false)'
    r" difficulty=(?P<difficulty>[123])))"
)
_MARKER = re.compile(r"#\s*(begin|end)\s+solution", re.I)
_NBVAL = re.compile(r"#\s*(NBVAL_|PYTEST_VALIDATE_)")

BLOCKS = ["answer", "check"], ["answer", "try", "check"]


class _Malformed(Exception):
    """The line of a cell, and the rule that does not hold there."""


def read_lesson(path: Path) -> Lesson:
    """The lesson in ``path``; LessonError where something about it is wrong."""
    return parse_lesson(path.read_text(encoding="utf-8"), path.stem, path.resolve().parents[2])


def parse_lesson(text: str, name: str, root: Path | None = None) -> Lesson:
    try:
        cells = tuple(_cells(text))
        every_cell_has_an_id_of_its_own(cells)
        solutions_stand_in_answers(cells)
        exercises_are_blocks(cells)
    except _Malformed as error:
        line, rule = error.args
        raise LessonError(f"{name}.py: malformed at line {line}: {rule}") from None
    return Lesson(name, cells, root)


def with_ids(text: str, lesson: str) -> str:
    """``text`` with an id in every header that needs one; the other lines stay as they are.

    The new id comes of the cell's first text: two people who build the same new cell give it the
    same id.
    """
    above, *parts = _HEADER_LINE.split(text)
    used = set(re.findall(r'\bid="([^"]*)"', "\n".join(parts[::2])))
    for place in range(0, len(parts), 2):
        header, body = parts[place : place + 2]
        if not re.search(r'\b(id|exercise)="', header):
            texts = (f"{lesson}\n{attempt}\n{header}{body}" for attempt in count())
            fresh = (f"{lesson[:2]}-{fingerprint(text, 6)}" for text in texts)
            new = next(id for id in fresh if id not in used)
            used.add(new)
            parts[place] = f'{header.rstrip()} id="{new}"'
    return above + "".join(parts)


def _cells(text: str) -> Iterator[Cell]:
    above, *parts = _HEADER_LINE.split(text)
    line = 1 + above.count("\n")
    if above.strip() or not parts:
        raise _Malformed(1, "a lesson starts with the header of a cell, # %%")
    for header, body in zip(parts[::2], parts[1::2], strict=True):
        yield _cell(header, body.strip("\n"), line)
        line += body.count("\n")


def _cell(header: str, body: str, line: int) -> Cell:
    found = _HEADER.fullmatch(header.rstrip())
    if not found:
        raise _Malformed(line, "not the header of a cell: authoring/source.py has them")
    if exercise := found["exercise"]:
        role = found["role"] or "answer"
        points, difficulty = int(found["points"] or 0), int(found["difficulty"] or 0)
        worth = points, found["required"] == "true", difficulty
        return Cell(f"{exercise}-{role}", "code", body, line, exercise, role, *worth)
    if found["markdown"]:
        return Cell(found["id"], "markdown", re.sub(r"^# ?", "", body, flags=re.M), line)
    return Cell(found["id"], "code", body, line)


def every_cell_has_an_id_of_its_own(cells: tuple[Cell, ...]) -> None:
    seen: set[str] = set()
    for cell in cells:
        if not cell.id or cell.id in seen:
            raise _Malformed(cell.line, "each cell has an id of its own, which build gives it")
        seen.add(cell.id)


def solutions_stand_in_answers(cells: tuple[Cell, ...]) -> None:
    """An answer defines its exercise, with and without its solutions, and only answers have some.
    No cell is hidden from nbval."""
    for cell in cells:
        if _MARKER.search(cell.solved if cell.role == "answer" else cell.text):
            raise _Malformed(cell.line, "markers enclose some lines of a function in an answer")
        if _NBVAL.search(cell.text):
            raise _Malformed(cell.line, "every output is compared, see notebooks/sanitize.cfg")
        if cell.role == "answer":
            if not cell.solution_lines:
                raise _Malformed(cell.line, "an answer has a solution between markers")
            for text in (cell.solved, cell.stub):
                defined = [getattr(node, "name", "") for node in _parsed(text, cell).body]
                if cell.exercise not in defined:
                    raise _Malformed(cell.line, f"an answer that defines no {cell.exercise}")


def _parsed(text: str, cell: Cell) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise _Malformed(cell.line, f"a cell that does not parse, {error.msg}") from None


def exercises_are_blocks(cells: tuple[Cell, ...]) -> None:
    """The story is for those who skip the exercises, too: no cell of it uses an answer."""
    code = [cell for cell in cells if cell.kind == "code"]
    names = {cell.exercise for cell in code if cell.exercise}
    for exercise, group in groupby(code, key=lambda cell: cell.exercise):
        block = list(group)
        roles = [cell.role for cell in block]
        checked = re.search(rf"\bcheck\(\s*{exercise}\b", block[-1].text)
        if exercise and not (roles in BLOCKS and checked):
            rule = f"an exercise is its answer, perhaps a try, and a cell with check({exercise})"
            raise _Malformed(block[0].line, rule)
        for cell in () if exercise else block:
            for node in ast.walk(_parsed(cell.text, cell)):
                if getattr(node, "id", getattr(node, "name", "")) in names:
                    raise _Malformed(cell.line, "an answer is used or defined outside its exercise")
