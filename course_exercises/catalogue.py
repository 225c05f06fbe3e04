"""All exercises that are here, by name: ``find``, ``exercises``, and ``check``, which people call.

Only the lesson that declares an exercise is imported for it. A released folder holds only some
lessons, so INDEX is read from the files that are there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from difflib import get_close_matches

from course_check.checking import report, verdict_on
from course_check.exercise import Exercise
from course_check.harness.answer import Answer
from course_check.own_cells import note_cells
from course_check.verdict import Verdict
from course_exercises import INDEX
from course_exercises.declare import declared
from course_lib.errors import CheckFailed, interruptible

# A lesson's first cell imports ``check`` and so this module, before any cell with an answer is run.
note_cells()


def check(fn: Callable) -> Verdict:
    """Check an answer to an exercise, which is found by the function's name.

    Returns the Verdict of a right answer; raises CheckFailed, whose text is the verdict, where
    it is wrong or not written yet, and CannotCheck where this machine cannot run it. Call it from
    a notebook or a script, not from a rank.

    >>> check(ring_all_reduce)
    """
    name = getattr(fn, "__name__", None)
    if not callable(fn) or name is None:
        raise TypeError(f"check() takes a function, not {type(fn).__name__}")
    with interruptible("check()"):
        verdict = verdict_on(find(name), Answer(name, fn))
    return report(verdict, fn)


def exercises() -> dict[str, Exercise]:
    """All exercises that are here, by name."""
    for lesson in INDEX:
        _import(lesson)
    return declared


def find(name: str) -> Exercise:
    """The exercise of this name, or one line that says which name may have been meant."""
    for lesson, names in INDEX.items():
        if name in names:
            _import(lesson)
            return declared[name]
    near = get_close_matches(name, [n for names in INDEX.values() for n in names], n=1)
    more = f"did you mean {near[0]}?" if near else "python -m course_lib progress lists them all."
    raise CheckFailed(f"No exercise is called {name}: {more}")


def _import(lesson: str) -> None:
    importlib.import_module(f"course_exercises.{lesson}")
