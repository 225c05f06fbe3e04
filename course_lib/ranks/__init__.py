"""Real ranks: processes that start in milliseconds, are recorded, and never outlive their cell.

``course_lib/README.md`` follows one call of ``run`` from file to file.
"""

from course_lib.ranks.launcher import run

__all__ = ["run"]
