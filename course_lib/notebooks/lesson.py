"""What a lesson is: cells in order, some of them blocks of exercises.

An exercise is a block of cells with one name, markdown between them allowed:

    # %% exercise="my_share" role="answer" points=10 required=true difficulty=1
    def my_share(n_items: int) -> range:
        \"\"\"What it does, as a full docstring.\"\"\"
        ### BEGIN SOLUTION
        return range(n_items)
        ### END SOLUTION

    # %% exercise="my_share" role="try"          (optional)
    run(my_share, 10).results

    # %% exercise="my_share" role="check"
    check(my_share)

In the learner's copy ``STUB`` stands in place of each solution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

STUB = 'raise NotImplementedError("not written yet")'
ROLES = ("answer", "try", "check")
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


class LessonError(ValueError):
    """Something in a lesson or a notebook is not as it has to be: one line, with its place."""


@dataclass(frozen=True)
class Cell:
    """One cell. ``exercise`` and ``role`` are empty outside of exercises; ``line`` is its header's.

    ``points``, ``required`` and ``difficulty`` are those of the exercise, on the answer cell.
    """

    id: str
    kind: str  # "markdown" or "code"
    text: str  # as it is written, solutions and markers included
    line: int
    exercise: str = ""
    role: str = ""
    points: int = 0
    required: bool = False
    difficulty: int = 0
    tags: tuple[str, ...] = ()

    @property
    def solved(self) -> str:
        """The text with its solutions, without the markers."""
        return "\n".join(line for line, _, marker in self._lines() if not marker)

    @property
    def stub(self) -> str:
        """The text with ``STUB`` in place of each solution."""
        out = []
        for line, inside, marker in self._lines():
            if line.strip() == BEGIN:
                out.append(line[: len(line) - len(line.lstrip())] + STUB)
            elif not inside and not marker:
                out.append(line)
        return "\n".join(out)

    @property
    def solution_lines(self) -> list[str]:
        """The lines that a learner's copy must not hold, stripped."""
        lines = (line.strip() for line, inside, marker in self._lines() if inside and not marker)
        return [line for line in lines if line]

    def _lines(self) -> Iterator[tuple[str, bool, bool]]:
        """Each line; whether it lies within a solution; whether it is a marker."""
        inside = False
        for line in self.text.splitlines():
            marker = line.strip() in (BEGIN, END)
            if marker:
                inside = line.strip() == BEGIN
            yield line, inside, marker


@dataclass(frozen=True)
class Lesson:
    """``name`` is the file's, ``00_hello_ranks``."""

    name: str
    cells: tuple[Cell, ...]

    @property
    def answers(self) -> list[Cell]:
        """The answer cells, one for each exercise."""
        return [cell for cell in self.cells if cell.role == "answer"]
