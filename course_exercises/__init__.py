"""The course's exercises: for each lesson a file with its cases, mistakes and rules.

A check imports the one file that declares its exercise. What several lessons need lies in files
named after what they offer. ``docs/adding-an-exercise.md`` shows how.
"""

import re
from pathlib import Path

# The exercises of each lesson. A declaration begins with a number and a name, on a line by itself.
INDEX: dict[str, list[str]] = {
    file.stem: re.findall(r'^    "\d\d\.\d (\w+)",$', file.read_text("utf-8"), re.MULTILINE)
    for file in sorted(Path(__file__).parent.glob("lesson_*.py"))
}
