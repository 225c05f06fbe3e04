"""What a release asks for and what it is worth: notebooks/manifest.json, made by ``build``.

    lesson → file, hash, exercises → number, points, weights of the levels, cells, hash of the stub

Marks come from this file and from nothing in a submission. An instructor keeps the copy that
went out with the release; ``build --check`` says when lessons have moved on from the one here.
"""

from __future__ import annotations

import hashlib
import json
from argparse import Namespace
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from course_check.copies.folders import Folders, LessonError, replace_file
from course_check.copies.notebook import fingerprint, to_text
from course_exercises.catalogue import exercises
from course_staff.authoring import build as building
from course_staff.authoring.copies import learner_copy, version_of
from course_staff.authoring.lesson import Lesson
from course_staff.authoring.source import read_lesson

FORMAT = 1
NAME = "manifest.json"


@dataclass(frozen=True)
class Item:
    """One exercise as it is worth marks."""

    exercise: str
    number: str
    points: int
    required: bool
    levels: dict[str, int]  # of 100
    answer_cell: str
    check_cell: str
    given: str  # hash of the stub

    @property
    def graded(self) -> bool:
        """Whether the judge's network can carry it: it has no modelled GPUs."""
        known = exercises().get(self.exercise)
        return known is None or not known.on_gpus


@dataclass(frozen=True)
class Manifest:
    """A release: its version, and by lesson what it asks for."""

    release: str
    lessons: dict[str, list[Item]]


def read(path: Path) -> Manifest:
    """The manifest in a file; LessonError where it is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}, this is for {FORMAT}")
        lessons = {
            name: [Item(**item) for item in lesson["exercises"]]
            for name, lesson in data["lessons"].items()
        }
        return Manifest(str(data["release"]), lessons)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LessonError(f"{path} is no manifest of this course: {error}") from None


def digest_of(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def made_from(lessons: list[Lesson], release: str) -> dict[str, Any]:
    """The manifest of these lessons, as it is stored."""
    made = {lesson.name: _of_lesson(lesson) for lesson in lessons}
    return {"format": FORMAT, "release": release, "lessons": made}


def _of_lesson(lesson: Lesson) -> dict[str, Any]:
    items = []
    for cell in lesson.answers:
        known = exercises().get(cell.exercise)
        items.append(
            Item(
                exercise=cell.exercise,
                number=known.number if known else "",
                points=cell.points,
                required=cell.required,
                levels=known.points if known else {"core": 100},
                answer_cell=cell.id,
                check_cell=f"{cell.exercise}-check",
                given=fingerprint(cell.stub),
            )
        )
    return {
        "notebook": f"{lesson.name}.ipynb",
        "sha256": hashlib.sha256(to_text(learner_copy(lesson)).encode()).hexdigest(),
        "exercises": [asdict(item) for item in items],
    }


def main(args: Namespace) -> int:
    """``build``: the notebooks, then the manifest; ``--check`` holds both."""
    if code := building.main(args):
        return code  # with notebooks that are not right, neither is what is made from them
    folders = Folders.found()
    path = folders.learner / NAME
    lessons = [read_lesson(source) for source in sorted(folders.sources.glob("*.py"))]
    text = json.dumps(made_from(lessons, version_of(folders.root)), indent=1) + "\n"
    if not args.check:
        replace_file(path, text)
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        print(f"notebooks/{NAME} is not what the lessons say; run: python -m course_lib build")
        return 1
    return 0
