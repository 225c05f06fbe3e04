"""What the instructor decides: a small TOML file that ``policy.schema.json`` describes."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from course_check.copies.folders import LessonError
from course_staff.grading.walls import Limits

SHOWS = ("nothing", "passed", "marks", "diagnosis", "all")  # of feedback; each includes the former


@dataclass(frozen=True)
class Policy:
    """Read once, before anything is graded."""

    optional: str = "bonus"
    points: dict[str, int] = field(default_factory=dict)
    due: datetime | None = None
    per_day: float = 0.0
    at_most: float = 1.0
    limits: Limits = field(default_factory=Limits)
    before_due: str = "all"
    after_due: str = "all"
    pictures: bool = True

    @property
    def judging(self) -> dict[str, Any]:
        """What the judge has to know of it."""
        return {"limits": asdict(self.limits), "pictures": self.pictures}

    def lateness(self, submitted: datetime) -> float:
        """The share of its marks that a submission loses, for each day that has begun."""
        if self.due is None or submitted <= self.due:
            return 0.0
        days = math.ceil((submitted - self.due) / timedelta(days=1))
        return min(days * self.per_day, self.at_most)

    def shown(self, now: datetime) -> tuple[str, bool]:
        """How much feedback says now, and whether it says it of core alone."""
        if self.due is None or now >= self.due:
            return self.after_due, False
        core = self.before_due == "core"
        return (self.after_due if core else self.before_due), core


def read(path: Path) -> Policy:
    """The policy in a file; LessonError names what it cannot follow."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LessonError(f"{path}: {error}") from None
    schema = json.loads(Path(__file__).with_name("policy.schema.json").read_text())
    plain = json.loads(json.dumps(data, default=str))  # a date as its text
    if wrong := best_match(Draft202012Validator(schema).iter_errors(plain)):
        where = ".".join(map(str, wrong.path))
        raise LessonError(": ".join(filter(None, [str(path), where, wrong.message])))
    limits = Limits(**plain.pop("limits", {}))
    values = {name: v for section in plain.values() for name, v in section.items()}
    if "due" in values:
        values["due"] = datetime.fromisoformat(values["due"]).astimezone()
    values.setdefault("before_due", values.get("after_due", "all"))
    policy = Policy(limits=limits, **values)
    order = ("core", *SHOWS)
    if order.index(policy.before_due) > order.index(policy.after_due):
        raise LessonError(
            f"{path}: before_due shows more than after_due, and what students have "
            "seen cannot be taken back"
        )
    return policy
