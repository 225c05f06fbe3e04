"""Whose submission is whose: a roster, as CSV.

    id,submission,name,email,login,section,submitted,due
    4711,jdoe,"Doe, Jane",jdoe@example.edu,jdoe,A,2026-03-01T20:00:00+01:00,

Only ``id`` has to be there. A submission belongs to the student whose ``submission``, or ``id``
where that is empty, is the name of its file, of a folder that it lies in, or a word of those
between underscores. ``submitted`` and ``due`` say for one student what else holds for all; a time
without an offset is this machine's.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from course_check.copies.folders import LessonError


@dataclass(frozen=True)
class Student:
    """One row of a roster."""

    id: str
    submission: str = ""
    name: str = ""
    email: str = ""
    login: str = ""
    section: str = ""
    submitted: datetime | None = None
    due: datetime | None = None


def safe(text: str) -> str:
    """The text as a part of a submission's name: letters, digits and -_. stay, all else is "_"."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)


def read_roster(path: Path) -> list[Student]:
    """The students in a file; LessonError names what it cannot follow."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            return [_student(row, f"{path}, line {rows.line_num}") for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LessonError(f"{path}: {error}") from None


def _student(row: dict[str, str], place: str) -> Student:
    known = Student.__dataclass_fields__
    stripped = {name: (row[name] or "").strip() for name in known.keys() & row.keys()}
    given: dict[str, Any] = {name: text for name, text in stripped.items() if text}
    try:
        for name in given.keys() & {"submitted", "due"}:
            given[name] = datetime.fromisoformat(given[name]).astimezone(UTC)
        return Student(**given)
    except (ValueError, TypeError) as error:
        raise LessonError(f"{place}: {error}") from None


def whose(name: str, roster: list[Student] | None) -> Student | None:
    """The student of a submission, by its name. Without a roster, the name is the student's id."""
    if roster is None:
        return Student(name)
    for part in (name, *reversed(name.split("__"))):
        words = {part, *part.split("_")}
        found = [s for s in roster if safe(s.submission or s.id) in words]
        if len(found) == 1:
            return found[0]
    return None
