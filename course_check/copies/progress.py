"""python -m course_lib progress: which exercises are solved, and which lesson comes next.

    check in work/NN_name.ipynb ─► record ─► work/progress.jsonl ─┐
    titles and exercises in notebooks/NN_name.ipynb ──────────────┴─► Map ─► shell, work/map.ipynb

A line of progress.jsonl says what one answer reached. Lines are only added, each in one write, and
the best of an exercise counts: two notebooks at once cannot undo one another, and where a line is
damaged the others still count. The file is the learner's own, and grading never reads it.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import Namespace
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from course_check.copies.folders import Folders

NOTES, MAP = "progress.jsonl", "map.ipynb"
LEGEND = "● solved, ◐ some levels passed, ○ open; ★ easy to ★★★ hard"
BESIDE = {  # what else a learner looks for, where it has been handed out
    "glossary": "notebooks/README.md",
    "errors, and what to do": "docs/errors.md",
    "a gradient that is wrong": "docs/gradients.md",
    "your own jobs": "README.md",
}


def main(args: Namespace) -> int:
    print(Map.found())
    return 0


# ---- what check notes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Best:
    """The best answer to an exercise: whether each level passed, and on which day."""

    levels: dict[str, bool] = field(default_factory=dict)
    day: str = ""

    @property
    def passed(self) -> list[str]:
        return [level for level, passed in self.levels.items() if passed]

    @property
    def sign(self) -> str:
        return "○" if not self.passed else "◐" if len(self.passed) < len(self.levels) else "●"


def record(exercise: str, levels: dict[str, bool]) -> Path | None:
    """Note what an answer reached, if nothing better is noted; returns the map that is now behind.

    Only a notebook in the learner's folder does so. Where the file cannot be written, this says so,
    and the check counts.
    """
    try:
        work = Path.cwd()
    except FileNotFoundError:  # the folder has been removed under this process
        return None
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    learners = work.name == "work" and (work.parent / "notebooks").is_dir()
    if not (learners and hasattr(shell, "kernel")):
        return None
    if sum(levels.values()) > len(read_best(work)[exercise].passed):
        note = {"exercise": exercise, "levels": levels, "day": f"{date.today()}"}
        try:
            with open(work / NOTES, "a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(note)}")  # a line of its own, also after a torn one
            return work / MAP
        except OSError as error:
            print(f"work/{NOTES} cannot be written ({error.strerror}): the map will not show this.")
    return None


def read_best(work: Path) -> defaultdict[str, Best]:
    """The best that is noted of each exercise. Damaged lines are skipped."""
    best: defaultdict[str, Best] = defaultdict(Best)
    for line in _read_text(work / NOTES).splitlines():
        match _parse(line):
            case {"exercise": str(name), "levels": {**levels}, "day": str(day)}:
                found = Best({str(level): passed is True for level, passed in levels.items()}, day)
                if len(found.passed) > len(best[name].passed):
                    best[name] = found
    return best


def _read_text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _parse(text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


# ---- the map -------------------------------------------------------------------------------------


_MINUTES = re.compile(r"\| \*\*Time\*\* \| about (\d+) minutes")


@dataclass(frozen=True)
class Lesson:
    """What a notebook says of its lesson: title, minutes with the required exercise, exercises.

    Of each exercise the metadata of its answer cell: whether it is "required", and its "difficulty"
    from 1 to 3; and the id of the cell above that states its "goal".
    """

    file: str
    title: str
    minutes: str
    exercises: dict[str, dict[str, Any]]

    def __str__(self) -> str:
        return f"{self.file[:2]}  {self.title}"


def _read_lesson(path: Path) -> Lesson:
    cells: list[Any] = []
    match _parse(_read_text(path)):
        case {"cells": [*found]}:  # anything else is no notebook
            cells = found
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    lines = "\n".join(texts).splitlines()
    title = next((line[2:] for line in lines if line.startswith("# ")), path.stem)
    minutes = next((m[1] for line in lines if (m := _MINUTES.match(line))), "")
    goal, tasks = "", {}
    for cell in cells:
        goal = cell.get("id", "") if cell["cell_type"] == "markdown" else goal
        if cell["metadata"].get("role") == "answer":
            tasks[cell["metadata"]["exercise"]] = cell["metadata"] | {"goal": goal}
    return Lesson(path.name, title, minutes, tasks)


@dataclass(frozen=True)
class Map:
    """The lessons in their order, and what was reached. A notebook shows it with links."""

    root: Path
    lessons: list[Lesson]
    best: defaultdict[str, Best]

    @classmethod
    def found(cls) -> Map:
        folders = Folders.found()
        files = sorted(folders.learner.glob("*.ipynb"))
        return cls(folders.root, [_read_lesson(file) for file in files], read_best(folders.work))

    def __str__(self) -> str:
        lines = []
        width = max((len(name) for le in self.lessons for name in le.exercises), default=0)
        for lesson in self.lessons:
            lines.append(str(lesson))
            for name, task in lesson.exercises.items():
                best = self.best[name]
                kind = "" if task["required"] else "optional"
                what = f"{', '.join(best.passed)}  {best.day}" if best.passed else ""
                lines.append(f"    {best.sign} {name:<{width}}  {kind:<10}{what}".rstrip())
        return "\n".join([*lines, "", LEGEND, self._next("{0}")])

    def _repr_markdown_(self) -> str:
        lines = ["# The course", "", self._next("[{0}]({0.file})"), ""]
        lines += ["| no. | lesson | minutes | required | optional |", "|---|:---|---:|:---|:---|"]
        for lesson in self.lessons:
            required, optional = (self._links(lesson, which) for which in (True, False))
            row = lesson.file[:2], f"[{lesson.title}]({lesson.file})", lesson.minutes
            lines.append(f"| {' | '.join([*row, required, optional])} |")
        there = {name: file for name, file in BESIDE.items() if (self.root / file).exists()}
        beside = " · ".join(f"[{name}](../{file})" for name, file in there.items())
        return "\n".join([*lines, "", beside])

    def _links(self, lesson: Lesson, required: bool) -> str:
        """Links to the exercises of a lesson that are required, or to the others."""
        links = []
        for name, task in lesson.exercises.items():
            if task["required"] is required:
                best = self.best[name]
                link = f"[{name}]({lesson.file}#cell-id={task['goal']})\N{NO-BREAK SPACE}"
                levels = f" ({', '.join(best.passed)})" if best.sign == "◐" else ""
                stars = "★" * task.get("difficulty", 0)
                links.append(f"{best.sign}\N{NO-BREAK SPACE}{link}{stars}{levels}")
        return "\N{EM SPACE}".join(links)

    def _next(self, words: str) -> str:
        """The first lesson with a required exercise of which core is open: more is a choice."""
        for lesson in self.lessons:
            if any(t["required"] and not self.best[n].passed for n, t in lesson.exercises.items()):
                return "Next: " + words.format(lesson)
        return "Every required exercise has its core."
