"""``python -m course_lib check EXERCISE FILE [--json]``: one exercise against one file.

The file is a module or a notebook. Of a notebook, the cell that answers the exercise is checked,
with what that cell needs of the cells before it. No other cell is run.
"""

from __future__ import annotations

import ast
import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_check.checking import verdict_on
from course_check.exercise import Exercise
from course_check.harness.answer import Answer
from course_check.namespace import CellText, binds, namespace, readable, statements
from course_check.play import CannotCheck
from course_lib.errors import CheckFailed, CourseError


def main(args: Namespace, find: Callable[[str], Exercise]) -> int:
    """Print the verdict; 0 for full marks, 1 for less, 2 where this machine could not play it.
    Raises CheckFailed where there is nothing to check; with --json that is printed as well."""
    title = args.exercise
    try:
        exercise = find(args.exercise)
        title = exercise.title
        verdict = verdict_on(exercise, read_answer(args.exercise, args.file))
    except (CannotCheck, CheckFailed) as error:
        if isinstance(error, CheckFailed) and not args.json:
            raise
        print(json.dumps(_describe_unknown(title, error), indent=2) if args.json else error)
        return 2
    print(json.dumps(verdict.as_json(), indent=2) if args.json else verdict)
    return 0 if verdict.passed else 1


def _describe_unknown(exercise: str, error: CourseError) -> dict[str, Any]:
    """The verdict's fields where nothing is known of the answer: neither passed nor failed."""
    return {
        "exercise": exercise,
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
        if path.suffix == ".ipynb":
            source = _find_answer(source, name, file)
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


def _find_answer(notebook: str, name: str, file: str) -> str:
    """The source of the last cell that answers the exercise, below what it needs of others."""
    try:
        cells = [cell for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
        texts = ["".join(cell["source"]) for cell in cells]
    except (ValueError, LookupError, TypeError):
        raise CheckFailed(f"{file} is not a notebook") from None
    wanted = {"exercise": name, "role": "answer"}.items()
    marked = [n for n, cell in enumerate(cells) if wanted <= cell.get("metadata", {}).items()]
    defining = [n for n, text in enumerate(texts) if any(name in binds(s) for s in readable(text))]
    if not (found := marked or defining):
        raise CheckFailed(f"{file} has no cell that defines {name}")
    *before, answer = (CellText(file, text) for text in texts[: found[-1] + 1])
    if not readable(answer.source):
        return answer.source  # the reader is told which line is not Python
    taken = namespace(name, answer, before).cells
    return "\n".join(_copy(cell["source"], number) for cell in taken for number in cell["take"])


def _copy(source: str, number: int) -> str:
    """A statement as it was written; of an import, the part for one name."""
    statement = statements(source)[number]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return ast.unparse(statement)
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])
    return "\n".join(source.splitlines()[first - 1 : statement.end_lineno])
