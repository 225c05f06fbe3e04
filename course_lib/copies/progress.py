"""python -m course_lib progress: which exercises are solved, and which lesson comes next.

    check in work/NN_name.ipynb ─► record ─► work/progress.jsonl ─┐
    titles and exercises in notebooks/NN_name.ipynb ──────────────┴─► Map ─► shell, work/map.ipynb

A line of progress.jsonl says what one answer reached. Lines are only added, each in one write, and
the best of an exercise counts: two notebooks at once cannot undo one another, and where a line is
damaged the others still count. The file is the learner's own, and grading never reads it.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from course_lib.copies.folders import Folders

NOTES = "progress.jsonl"
LEGEND = "● solved, ◐ some levels passed, ○ open"


def main(args: Namespace) -> int:
    print(Map.found())
    return 0


# ---- what check notes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Best:
    """The best answer to an exercise: of each level whether it passed, and when that was."""

    levels: dict[str, bool] = field(default_factory=dict)
    day: str = ""

    @property
    def passed(self) -> list[str]:
        return [level for level, passed in self.levels.items() if passed]

    @property
    def sign(self) -> str:
        return "○" if not self.passed else "◐" if len(self.passed) < len(self.levels) else "●"


def record(exercise: str, levels: dict[str, bool]) -> None:
    """Note what an answer reached, if nothing better is noted. Only a notebook in the learner's
    folder does so; where the file cannot be written, it says so, and the check counts."""
    try:
        work = Path.cwd()
    except FileNotFoundError:  # the folder has been removed under this process
        return
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    learners = work.name == "work" and (work.parent / "notebooks").is_dir()
    if not (learners and hasattr(shell, "kernel")):
        return
    if sum(levels.values()) > len(recorded(work)[exercise].passed):
        note = {"exercise": exercise, "levels": levels, "day": f"{date.today()}"}
        try:
            with open(work / NOTES, "a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(note)}")  # a line of its own, also after a torn one
        except OSError as error:
            print(f"work/{NOTES} cannot be written ({error.strerror}): the map will not show this.")


def recorded(work: Path) -> defaultdict[str, Best]:
    """By exercise the best that is noted. What is damaged counts for nothing."""
    best: defaultdict[str, Best] = defaultdict(Best)
    for line in _text(work / NOTES).splitlines():
        match _parsed(line):
            case {"exercise": str(name), "levels": {**levels}, "day": str(day)}:
                found = Best({str(level): passed is True for level, passed in levels.items()}, day)
                if len(found.passed) > len(best[name].passed):
                    best[name] = found
    return best


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _parsed(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


# ---- the map -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lesson:
    """What a notebook says of its lesson: the title, and whether each exercise is required."""

    file: str
    title: str
    exercises: dict[str, bool]

    def __str__(self) -> str:
        return f"{self.file[:2]}  {self.title}"


def _lesson(path: Path) -> Lesson:
    cells: list[Any] = []
    match _parsed(_text(path)):
        case {"cells": [*found]}:  # anything else is no notebook
            cells = found
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    lines = "\n".join(texts).splitlines()
    title = next((line[2:] for line in lines if line.startswith("# ")), path.stem)
    answers = [cell["metadata"] for cell in cells if cell["metadata"].get("role") == "answer"]
    return Lesson(path.name, title, {one["exercise"]: one["required"] for one in answers})


@dataclass(frozen=True)
class Map:
    """The lessons in their order, and what was reached. A notebook shows it with links."""

    lessons: list[Lesson]
    best: defaultdict[str, Best]

    @classmethod
    def found(cls) -> Map:
        folders = Folders.found()
        files = sorted(folders.learner.glob("*.ipynb"))
        return cls([_lesson(file) for file in files], recorded(folders.work))

    def __str__(self) -> str:
        lines = []
        width = max((len(name) for le in self.lessons for name in le.exercises), default=0)
        for lesson in self.lessons:
            lines.append(str(lesson))
            for name, required in lesson.exercises.items():
                best = self.best[name]
                kind = "" if required else "optional"
                what = f"{', '.join(best.passed)}  {best.day}" if best.passed else ""
                lines.append(f"    {best.sign} {name:<{width}}  {kind:<10}{what}".rstrip())
        return "\n".join([*lines, "", LEGEND, self._next("{0}")])

    def _repr_markdown_(self) -> str:
        lines = ["# The course", "", self._next("[{0}]({0.file})"), ""]
        lines += ["| | lesson | required | optional |", "|---|:---|:---|:---|"]
        for lesson in self.lessons:
            required, optional = (self._links(lesson, which) for which in (True, False))
            title = f"[{lesson.title}]({lesson.file})"
            lines.append(f"| {lesson.file[:2]} | {title} | {required} | {optional} |")
        return "\n".join(lines)

    def _links(self, lesson: Lesson, required: bool) -> str:
        links = []
        for name in (name for name, which in lesson.exercises.items() if which is required):
            best = self.best[name]
            levels = f" ({', '.join(best.passed)})" if best.sign == "◐" else ""
            link = f"[{name}]({lesson.file}#cell-id={name}-answer)"
            links.append(f"{best.sign}\N{NO-BREAK SPACE}{link}{levels}")
        return "\N{EM SPACE}".join(links)

    def _next(self, words: str) -> str:
        """The first lesson with a required exercise of which core is open: more is a choice."""
        for lesson in self.lessons:
            required = [name for name, needed in lesson.exercises.items() if needed]
            if not all(self.best[name].passed for name in required):
                return "Next: " + words.format(lesson)
        return "Every required exercise has its core."
