"""``python -m course_lib check EXERCISE FILE.py [--json]``: one exercise against one file."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import find
from course_lib.checks.in_rank import Answer
from course_lib.errors import CheckFailed


class BadInput(ValueError):
    """There is nothing to check: one line says why."""


def main(args: Namespace) -> int:
    return check_file(args.exercise, args.file, args.json)


def check_file(exercise: str, file: str, as_json: bool = False) -> int:
    """Print the verdict; 0 for full marks, 1 for less, 2 where there is nothing to check."""
    try:
        found = find(exercise)
        answer = read_answer(exercise, file)
    except (BadInput, CheckFailed) as error:
        print(f"check: {error}", file=sys.stderr)
        return 2
    verdict = verdict_on(found, answer)
    print(json.dumps(verdict.as_json(), indent=2) if as_json else verdict)
    return 0 if verdict.passed else 1


def read_answer(name: str, file: str) -> Answer:
    """The answer in a file of source. The file is compiled here, and run elsewhere."""
    path = Path(file)
    try:
        source = path.read_text(encoding="utf-8")
        code = compile(source, path.name, "exec", dont_inherit=True)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not a text file in UTF-8") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise BadInput(f"{file}{line} is not Python: {getattr(error, 'msg', error)}") from None
    if name not in code.co_names:
        raise BadInput(f"{file} defines no function {name}")
    return Answer(name, source=source, file=path.name)
