"""Real ranks: processes that start in milliseconds, are recorded, and never outlive their cell."""

from course_lib.launching.launcher import run

__all__ = ["run"]
