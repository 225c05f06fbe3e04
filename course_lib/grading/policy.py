"""What the instructor decides: a small TOML file; what it does not say is as here.

[marks]
optional = "full"         # exercises that are not required: "full", "bonus" or "none"
points = { my_share = 15 }  # in place of the manifest's

[limits]
memory_mb = 1024          # for each rank, on top of what torch takes
play_seconds = 10         # one case
exercise_seconds = 90     # all cases of one exercise, once
submission_seconds = 600  # all exercises

[feedback]
pictures = true
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from course_lib.grading.walls import Limits
from course_lib.notebooks.lesson import LessonError

OPTIONAL = ("full", "bonus", "none")


@dataclass(frozen=True)
class Policy:
    """Read once, before anything is graded."""

    optional: str = "full"
    points: dict[str, int] = field(default_factory=dict)
    cpu_seconds: int = 120
    memory_mb: int = 1024
    processes: int = 64
    files: int = 128
    file_mb: int = 16
    play_seconds: float = 10.0
    exercise_seconds: float = 90.0
    submission_seconds: float = 600.0
    pictures: bool = True

    @property
    def limits(self) -> Limits:
        return Limits(self.cpu_seconds, self.memory_mb, self.processes, self.files, self.file_mb)

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


_SECTIONS = {
    "marks": ("optional", "points"),
    "limits": ("cpu_seconds", "memory_mb", "processes", "files", "file_mb", "play_seconds",
               "exercise_seconds", "submission_seconds"),
    "feedback": ("pictures",),
}  # fmt: skip


def read(path: Path | None) -> Policy:
    """The policy in a file, or the default; LessonError names what it cannot follow."""
    if path is None:
        return Policy()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LessonError(f"{path} cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise LessonError(f"{path}: {error}") from None
    policy = Policy()
    for section, values in data.items():
        if section not in _SECTIONS or not isinstance(values, dict):
            raise LessonError(f"{path}: no section [{section}]; there are {', '.join(_SECTIONS)}")
        for name, value in values.items():
            if name not in _SECTIONS[section]:
                known = ", ".join(_SECTIONS[section])
                raise LessonError(f"{path}: [{section}] has no {name}; there are {known}")
            policy = replace(policy, **{name: _checked(path, name, value)})
    return policy


def _checked(path: Path, name: str, value: Any) -> Any:
    default = next(f for f in fields(Policy) if f.name == name)
    if name == "optional" and value not in OPTIONAL:
        raise LessonError(f"{path}: optional is one of {', '.join(OPTIONAL)}, not {value!r}")
    if name == "points":
        fine = isinstance(value, dict) and all(type(v) is int and v >= 0 for v in value.values())
    elif name == "pictures":
        fine = isinstance(value, bool)
    elif name == "optional":
        fine = True
    else:
        fine = type(value) in ((int, float) if "float" in str(default.type) else (int,))
        fine = fine and value > 0
    if not fine:
        raise LessonError(f"{path}: {name} = {value!r} is not what it can be")
    return value
