"""Right answers to each exercise, and wrong ones: edits of a right one.

    tests/answers/<exercise>.py     def one_bucket(model): …        a right answer, named by how
                                    def one_by_one(model): …
                                    WRONG = {"sums": ("one_by_one", "05.sum", "why people write it",
                                                      ("what it has", "what stands there instead"))}

An edit replaces what occurs exactly once. An answer with several edits makes several mistakes.
Wrong answers that are edits of ``solution`` are edits of the lesson's own, which then is the first
right answer; the file's imports are those that it needs.
"""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from course_exercises.catalogue import find
from course_staff.authoring.source import read_lesson

ANSWERS = Path(__file__).parent / "answers"
SOURCES = Path(__file__).parents[1] / "notebooks" / "src"


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


def exercises() -> list[str]:
    return sorted(path.stem for path in ANSWERS.glob("*.py"))


@cache
def right(exercise: str) -> dict[str, str]:
    """By name, the text of each right answer: the file's imports, and the function or class by its
    own name."""
    text = (ANSWERS / f"{exercise}.py").read_text()
    body = ast.parse(text).body
    lines = text.splitlines(keepends=True)

    def of(node: ast.stmt) -> str:
        return "".join(lines[node.lineno - 1 : node.end_lineno])

    imports = "".join(of(n) for n in body if isinstance(n, ast.Import | ast.ImportFrom))
    answers = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    own = {n.name: f"{imports}\n\n{of(n)}".replace(n.name, exercise) for n in answers}
    if any(one.of == "solution" for one in wrong(exercise).values()):
        return {"solution": f"{imports}\n\n{solution(exercise)}\n", **own}
    return own


def solution(exercise: str) -> str:
    """The text of the lesson's own answer."""
    [lesson] = SOURCES.glob(f"{find(exercise).number[:2]}_*.py")
    [answer] = [cell for cell in read_lesson(lesson).answers if cell.exercise == exercise]
    return answer.solved


@cache
def wrong(exercise: str) -> dict[str, Wrong]:
    path = ANSWERS / f"{exercise}.py"
    spec = importlib.util.spec_from_file_location(f"answers_{exercise}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {
        name: Wrong(exercise, name, of, diagnosis, why, tuple(edits))
        for name, (of, diagnosis, why, *edits) in module.WRONG.items()
    }


def source(exercise: str, name: str) -> str:
    """The text of any answer, by its name."""
    known = right(exercise)
    return known[name] if name in known else wrong(exercise)[name].source()
