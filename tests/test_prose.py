"""How a lesson reads, counted: prose beside code, length of cells, captions, words we avoid.

python tests/test_prose.py        # the same numbers as a table, for authors
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from course_lib.notebooks.lesson import Cell, Lesson
from course_lib.notebooks.source import read_lesson

SOURCES = sorted((Path(__file__).parents[1] / "notebooks" / "src").glob("*.py"))
CELLS = range(25, 41)
WORDS_PER_CODE_CELL = range(60, 111)
MEDIAN_LINES = range(3, 7)
MOST_LINES = 25
AVOIDED = re.compile(
    r"\b(simply|obviously|trivial(ly)?|of course|easy|easily|merely)\b", re.IGNORECASE
)
# Whoever reads the course reads nothing about how it was made.
FOREIGN = re.compile(r"\b(issue #?\d+|session|/work/|/home/|/tmp/|localhost)\b", re.IGNORECASE)

_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*(?:\([^)]*\)[^)]*)?\)")
_TABLE = re.compile(r"^\|.*$", re.MULTILINE)
_TAG = re.compile(r"</?[a-z]+[^>]*>")
_WORD = re.compile(r"[^\W_](?:[\w'’.:/-]*\w)?")


@dataclass(frozen=True)
class Numbers:
    """What is counted of one lesson."""

    cells: int
    code_cells: int
    words: int
    lines: tuple[int, ...]  # of each code cell without blank ones; an exercise's as learners see it
    longest: int  # of all code cells, blank lines counted
    pictures: int

    @property
    def words_per_code_cell(self) -> float:
        return self.words / self.code_cells


def prose(markdown: str) -> str:
    """The running text: no fenced code, tables, pictures, addresses or lists of sources."""
    text = markdown.split("## Sources")[0]
    text = _FENCE.sub("", text)
    text = _TABLE.sub("", text)
    text = _IMAGE.sub("", text)
    text = _LINK.sub(r"\1", text)
    return _TAG.sub("", text)


def words(markdown: str) -> int:
    return len(_WORD.findall(prose(markdown)))


def lines(code: str) -> int:
    return sum(1 for line in code.splitlines() if line.strip())


def pictures(cell: Cell) -> list[ast.Call]:
    """The calls of ``draw.something(…)`` in a code cell."""
    calls = (node for node in ast.walk(ast.parse(cell.solved)) if isinstance(node, ast.Call))
    return [c for c in calls if isinstance(c.func, ast.Attribute)
            and isinstance(c.func.value, ast.Name) and c.func.value.id == "draw"]  # fmt: skip


def caption(call: ast.Call) -> str:
    """A picture's caption as far as it stands in the cell; "" where there is none."""
    for keyword in call.keywords:
        if keyword.arg == "caption":
            strings = (n.value for n in ast.walk(keyword.value) if isinstance(n, ast.Constant))
            return "".join(str(s) for s in strings)
    return ""


def count(lesson: Lesson) -> Numbers:
    code = [cell for cell in lesson.cells if cell.kind == "code"]
    shown = [cell.stub if cell.exercise else cell.text for cell in code]
    return Numbers(
        cells=len(lesson.cells),
        code_cells=len(code),
        words=sum(words(cell.text) for cell in lesson.cells if cell.kind == "markdown"),
        lines=tuple(map(lines, shown)),
        longest=max(len(text.splitlines()) for text in shown),
        pictures=sum(len(pictures(cell)) for cell in code),
    )


@pytest.fixture(params=SOURCES, ids=lambda path: path.stem)
def lesson(request: pytest.FixtureRequest) -> Lesson:
    return read_lesson(request.param)


def test_there_are_lessons() -> None:
    assert SOURCES


def test_lesson_has_its_measure(lesson: Lesson) -> None:
    """Cells, words a code cell, length of code cells: the ranges of a lesson."""
    n = count(lesson)
    assert n.cells in CELLS
    assert WORDS_PER_CODE_CELL[0] <= n.words_per_code_cell <= WORDS_PER_CODE_CELL[-1]
    assert MEDIAN_LINES[0] <= median(n.lines) <= MEDIAN_LINES[-1], n.lines
    assert n.longest <= MOST_LINES


def test_every_picture_has_a_caption_that_states_something(lesson: Lesson) -> None:
    found = [call for cell in lesson.cells if cell.kind == "code" for call in pictures(cell)]
    assert found
    for call in found:
        assert len(caption(call).split()) >= 6, ast.unparse(call)[:100]


def test_words_that_talk_down_are_not_used(lesson: Lesson) -> None:
    for cell in lesson.cells:
        if cell.kind == "markdown":
            assert not (found := AVOIDED.search(prose(cell.text))), found


def test_nothing_of_the_workshop_is_left(lesson: Lesson) -> None:
    for cell in lesson.cells:
        assert not (found := FOREIGN.search(cell.text)), found


def test_counting_counts() -> None:
    """Words of running text only; blank lines are no lines."""
    text = "# A title\nSee [the page](https://a.b/c_(d)) now.\n```python\nnot = prose\n```\n"
    assert words(text + "![alt text](x.png)\n<details>\n| a | table |\n## Sources\n* left out") == 6
    assert lines("a = 1\n\nb = 2\n") == 2


def test_picture_without_caption_is_seen() -> None:
    cell = Cell(
        "x",
        "code",
        'draw.lines({}, "a", "b")\ndraw.bars({}, caption="six words are in this one")',
        1,
    )
    assert [caption(call) for call in pictures(cell)] == ["", "six words are in this one"]


def main() -> None:
    print("lesson                  cells  code  words  words/code  median  longest  pictures")
    for path in SOURCES:
        n = count(read_lesson(path))
        print(f"{path.stem:<24}{n.cells:>5}{n.code_cells:>6}{n.words:>7}{n.words_per_code_cell:>12.0f}"
              f"{median(n.lines):>8.1f}{n.longest:>9}{n.pictures:>10}")  # fmt: skip


if __name__ == "__main__":
    main()
