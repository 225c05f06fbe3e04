"""``python -m course_lib check EXERCISE FILE --again``: judged anew each time the file is saved.

This is for writing an answer in an editor, with the verdict in a terminal beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from course_lib.errors import CourseError

LOOK = 0.2  # seconds between two looks at the file: each system has its own way to tell of a save


def check_on_each_save(check: Callable[[], object], file: Path) -> NoReturn:
    """Check now, and again whenever the file has changed, until Ctrl-C."""
    while True:
        checked = _look(file)
        try:
            check()
        except (CourseError, ValueError, OSError) as error:
            print(error)
        print(f"\n-- waiting for {file.name} to be saved; Ctrl-C ends this --\n", flush=True)
        while _look(file) in (checked, None):  # while an editor replaces it, there is none
            time.sleep(LOOK)


def _look(file: Path) -> tuple[int, int, int] | None:
    """The facts about a file that a save changes; None if there is no such file."""
    with suppress(FileNotFoundError):
        known = file.stat()
        return known.st_ino, known.st_mtime_ns, known.st_size
    return None
