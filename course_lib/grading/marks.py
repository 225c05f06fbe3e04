"""From records to marks: points by exercise, from the manifest and the policy alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from course_lib.grading.answers import Submission
from course_lib.grading.manifest import Item, Manifest
from course_lib.grading.policy import Policy


@dataclass
class Mark:
    """One exercise of one submission. ``record`` is the judge's; empty where nothing was judged."""

    exercise: str
    number: str
    cell: str
    worth: float
    points: float
    required: bool
    counts: str  # "full", "bonus" or "none"
    reason: str = ""  # why there are no marks, where it is not the answer's being wrong
    note: str = ""
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def diagnosis(self) -> str:
        return str(self.record.get("diagnosis") or "")

    @property
    def passed(self) -> bool:
        return bool(self.record.get("passed"))


@dataclass
class Marked:
    """One submission."""

    name: str
    lesson: str
    marks: list[Mark]
    problem: str = ""  # of the whole file
    trouble: str = ""  # of the grading
    note: str = ""  # about the whole file

    @property
    def points(self) -> float:
        return round(sum(m.points for m in self.marks if m.counts != "none"), 2)

    @property
    def worth(self) -> float:
        return sum(m.worth for m in self.marks if m.counts == "full")

    @property
    def failed_to_grade(self) -> bool:
        return bool(self.trouble)

    @property
    def said(self) -> str:
        if self.problem:
            return self.problem
        said = f"{self.points:g} of {self.worth:g}"
        more = self.trouble or self.note
        return f"{said} ({more})" if more else said

    @property
    def undefended(self) -> dict[str, str]:
        out: dict[str, str] = {}
        for mark in self.marks:
            out |= mark.record.get("undefended", {})
        return out

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def loaded(name: str, done: Path) -> Marked:
    """What an earlier run has written down."""
    data = json.loads(done.read_text())["marked"]
    marks = [Mark(**mark) for mark in data.pop("marks")]
    return Marked(**(data | {"name": name, "marks": marks}))


def mark(
    name: str, submission: Submission, manifest: Manifest, policy: Policy, records: Path,
    trouble: str,
) -> Marked:  # fmt: skip
    """The marks of one submission. What has no record is 0, with a reason."""
    if not submission.lesson:
        return Marked(name, "", [], problem=submission.problem)
    out = Marked(name, submission.lesson, [], trouble=trouble, note=submission.note)
    for item in manifest.lessons[submission.lesson]:
        found = submission.answers[item.exercise]
        record = _record(records / f"{item.exercise}.json")
        reason = found.problem or str(record.get("reason", ""))
        if not record and not reason:
            reason = trouble or "the time was over, or its judge was lost: see nbval.log"
        out.marks.append(_marked(item, record, policy, reason, found.note))
    return out


def _record(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _marked(item: Item, record: Mapping[str, Any], policy: Policy, reason: str, note: str) -> Mark:
    worth = float(policy.points.get(item.exercise, item.points))
    counts = "full" if item.required else policy.optional
    return Mark(item.exercise, item.number, item.check_cell, worth,
                round(worth * share(item, record), 2), item.required, counts, reason, note,
                dict(record))  # fmt: skip


def share(item: Item, record: Mapping[str, Any]) -> float:
    """The part of its points that an answer gets: levels that passed, by the manifest's weights."""
    levels = record.get("levels", {})
    passed = sum(weight for name, weight in item.levels.items()
                 if levels.get(name, {}).get("state") == "passed")  # fmt: skip
    return passed / (sum(item.levels.values()) or 1)
