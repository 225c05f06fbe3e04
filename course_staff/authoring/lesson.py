"""What a lesson is: cells in order, some of them blocks of exercises. source.py reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

STUB = 'raise NotImplementedError("not written yet")'
_SOLUTION = re.compile(
    r"^(?P<indent> +)### BEGIN SOLUTION\n(?P<lines>.*?\S.*?)\n +### END SOLUTION$", re.M | re.S
)


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
    role: str = ""  # "answer", "try" or "check"
    points: int = 0
    required: bool = False
    difficulty: int = 0

    @property
    def solved(self) -> str:
        """The text with its solutions, without the markers."""
        return _SOLUTION.sub(r"\g<lines>", self.text)

    @property
    def stub(self) -> str:
        """The text with ``STUB`` in place of each solution."""
        return _SOLUTION.sub(rf"\g<indent>{STUB}", self.text)

    @property
    def solution_lines(self) -> list[str]:
        """The lines that a learner's copy must not hold, stripped."""
        solutions = "\n".join(found["lines"] for found in _SOLUTION.finditer(self.text))
        return [line.strip() for line in solutions.splitlines() if line.strip()]


@dataclass(frozen=True)
class Lesson:
    """``name`` is the file's, ``00_hello_ranks``; ``root`` the folder of the course it lies in."""

    name: str
    cells: tuple[Cell, ...]
    root: Path | None = None

    @property
    def title(self) -> str:
        """The headline of its first cell; the file's name where that has none."""
        lines = self.cells[0].text.splitlines() if self.cells else []
        return next((line[2:] for line in lines if line.startswith("# ")), self.name)

    @property
    def answers(self) -> list[Cell]:
        """The answer cells, one for each exercise."""
        return [cell for cell in self.cells if cell.role == "answer"]
