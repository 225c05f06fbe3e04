"""From records to marks: points by exercise, from the manifest and the policy alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from course_staff.grading.answers import Submission
from course_staff.grading.policy import SHOWS, Policy
from course_staff.grading.students import Student
from course_staff.manifest import Item, Manifest


@dataclass(frozen=True)
class Mark:
    """One exercise of one submission. ``record`` is the judge's; empty where nothing was judged."""

    exercise: str
    number: str
    cell: str
    worth: float
    counts: str  # "full", "bonus" or "none"; "skipped" where it cannot be graded
    earned: dict[str, float]  # points by level, lateness taken off
    reason: str = ""  # why there are no marks, where it is not the answer's being wrong
    trouble: str = ""  # why it could not be judged: the grader's fault, and no zero
    note: str = ""
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def points(self) -> float:
        return round(sum(self.earned.values()), 2)

    @property
    def diagnosis(self) -> str:
        return str(self.record.get("diagnosis") or "")

    @property
    def passed(self) -> bool:
        return bool(self.record.get("passed"))


@dataclass(frozen=True)
class Marked:
    """One submission."""

    name: str
    lesson: str
    marks: list[Mark]
    problem: str = ""  # of the whole file
    trouble: str = ""  # of the grading
    note: str = ""  # about the whole file
    student: Student | None = None
    submitted: datetime | None = None
    late: float = 0.0  # the share of the marks that lateness has taken
    shows: str = "all"  # how much of it is here: of a student's copy, what the policy says
    core_alone: bool = False

    @property
    def points(self) -> float:
        return round(sum(m.points for m in self.marks if m.counts != "none"), 2)

    @property
    def worth(self) -> float:
        return sum(m.worth for m in self.marks if m.counts == "full")

    @property
    def has_points(self) -> bool:
        """Whether points are known and may be shown."""
        return not self.trouble and SHOWS.index(self.shows) >= SHOWS.index("marks")

    @property
    def status(self) -> str:
        if self.trouble:
            return "not judged"
        return "not gradable" if self.problem else "graded"

    @property
    def said(self) -> str:
        """In a line, for the instructor."""
        if self.problem or self.trouble:
            return self.problem or f"not judged: {self.trouble}"
        late = f"late: −{self.late:.0%}" if self.late else ""
        bonus = "bonus included" if self.points > self.worth else ""
        more = "; ".join(text for text in (self.note or late, bonus) if text)
        return f"{self.points:g} of {self.worth:g}" + (f" ({more})" if more else "")

    @property
    def undefended(self) -> dict[str, str]:
        return {k: v for m in self.marks for k, v in m.record.get("undefended", {}).items()}


def percent(share: float, most: float = 0.0) -> str:
    """A share of the points that are asked for. Where it, or the ``most`` of those that it is the
    mean of, is above all of them, a bonus is in it."""
    return f"{share:.0%}" + ", bonus included" * (max(share, most) > 1)


def mark(
    name: str,
    submission: Submission,
    manifest: Manifest,
    policy: Policy,
    records: Path,
    trouble: str = "",
    late: float = 0.0,
) -> Marked:
    """The marks of one submission. An answer without a record is not judged, and ``trouble`` says
    why."""
    if not submission.lesson:
        return Marked(name, "", [], problem=submission.problem)
    marks = []
    for item in manifest.lessons[submission.lesson]:
        found = submission.answers[item.exercise]
        file = records / f"{item.exercise}.json"
        record = json.loads(file.read_text()) if file.exists() and not found.problem else {}
        worth = float(policy.points.get(item.exercise, item.points))
        marks.append(
            Mark(
                exercise=item.exercise,
                number=item.number,
                cell=item.check_cell,
                worth=worth,
                counts=("full" if item.required else policy.optional) if item.graded else "skipped",
                earned=_earned(item, record, worth * (1 - late)),
                reason=found.problem or str(record.get("reason", "")),
                trouble=record.get("not_judged", "" if record or found.problem else trouble),
                note=found.note,
                record=record,
            )
        )
    trouble = trouble or next((f"{m.exercise}: {m.trouble}" for m in marks if m.trouble), "")
    return Marked(name, submission.lesson, marks, trouble=trouble, note=submission.note, late=late)


def _earned(item: Item, record: dict[str, Any], worth: float) -> dict[str, float]:
    """The points of each level that has passed."""
    levels = record.get("levels", {})
    whole = sum(item.levels.values()) or 1
    passed = [n for n in item.levels if levels.get(n, {}).get("state") == "passed"]
    return {name: worth * item.levels[name] / whole for name in passed}


# ---- what a student sees -------------------------------------------------------------------------

SINCE = {  # the least that a policy has to show for a student to have this of a record
    "written": "passed",
    "passed": "passed",
    "levels": "marks",
    "told": "diagnosis",
    "earlier_answers": "diagnosis",
    "pictures": "all",
}


def seen(marked: Marked, policy: Policy, now: datetime) -> Marked:
    """The student's copy: without what the policy does not show yet. Its points are never more
    than those that are given: a level that is not shown counts nothing in it."""
    shows, core_alone = policy.shown(now)
    kept = [] if shows == "nothing" else [_seen(m, shows, core_alone) for m in marked.marks]
    return replace(marked, marks=kept, shows=shows, core_alone=core_alone)


def _seen(mark: Mark, shows: str, core_alone: bool) -> Mark:
    shown = {name for name, least in SINCE.items() if SHOWS.index(least) <= SHOWS.index(shows)}
    record = mark.record
    earned = mark.earned if "levels" in shown else {}
    if core_alone:
        levels = {k: v for k, v in record.get("levels", {}).items() if k == "core"}
        passed = any(level["state"] == "passed" for level in levels.values())
        record = record | {"levels": levels, "passed": passed}
        earned = {k: v for k, v in earned.items() if k == "core"}
        if passed:  # all that is said is about another level
            shown -= {"told", "earlier_answers", "pictures"}
    record = {name: value for name, value in record.items() if name in shown}
    if "told" in record:  # the rows of the levels; the case, if it may be seen; the hint
        head, *rest = record["told"]
        rows = head.splitlines()[1:]
        if core_alone:
            rows = [row for row in rows if row.split()[:1] == ["core"]]
        record["told"] = ["\n".join(rows), *(rest if shows == "all" else rest[-1:])]
    told = "told" in shown or not record.get("written")
    return replace(mark, record=record, earned=earned, reason=mark.reason if told else "")
