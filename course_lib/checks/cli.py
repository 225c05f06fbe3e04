"""``python -m course_lib check EXERCISE FILE.py [--json]``: one exercise against one file."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from course_lib.beside.in_rank import Answer
from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import Exercise, find
from course_lib.checks.play import CannotCheck
from course_lib.errors import CheckFailed


def main(args: Namespace) -> int:
    """Print the verdict; 0 for full marks, 1 for less, 2 where this machine could not play it.
    Raises where there is nothing to check."""
    exercise = find(args.exercise)
    try:
        verdict = verdict_on(exercise, read_answer(args.exercise, args.file))
    except CannotCheck as error:
        print(json.dumps(_unknown(exercise, error), indent=2) if args.json else error)
        return 2
    print(json.dumps(verdict.as_json(), indent=2) if args.json else verdict)
    return 0 if verdict.passed else 1


def _unknown(exercise: Exercise, error: CannotCheck) -> dict[str, Any]:
    """The verdict's fields where nothing is known of the answer: neither passed nor failed."""
    return {
        "exercise": exercise.title,
        "passed": None,
        "points": None,
        "levels": {},
        "diagnosis": "could-not-run",
        "case": None,
        "hint": str(error),
    }


def read_answer(name: str, file: str) -> Answer:
    """The answer in a file of source. The file is compiled here, and run elsewhere."""
    path = Path(file)
    try:
        source = path.read_text(encoding="utf-8")
        code = compile(source, path.name, "exec", dont_inherit=True)
    except OSError as error:
        raise CheckFailed(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CheckFailed(f"{file} is not a text file in UTF-8") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise CheckFailed(f"{file}{line} is not Python: {getattr(error, 'msg', error)}") from None
    if name not in code.co_names:
        raise CheckFailed(f"{file} defines no function {name}")
    return Answer(name, source=source, file=path.name)
