"""The shape of the package: which way imports point, how large things are, what is public."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import course_lib
from course_lib.checks.exercise import exercises

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "course_lib"

# Each part may import from those named, and from itself. "course_lib" is the public surface.
BASE = {
    "context",
    "errors",
    "explain",
    "failures",
    "load_factor",
    "overlap",
    "pickling",
    "progress_line",
    "rendezvous",
    "terminal",
    "trace",
    "user_code",
    "versions",
}
ARROWS: dict[str, set[str]] = {
    "trace": set(),
    "context": set(),
    "errors": {"trace"},
    "load_factor": set(),
    "overlap": set(),
    "progress_line": set(),
    "user_code": {"trace"},
    "explain": {"errors", "trace"},
    "failures": {"errors", "explain", "pickling", "trace", "user_code"},
    "pickling": {"errors", "user_code"},
    "rendezvous": set(),
    "terminal": set(),
    "data": set(),
    "draw": {"errors", "trace"},
    "ranks": BASE,
    "simulated": BASE,
    "checks": BASE | {"course_lib", "ranks", "simulated"},
    "notebooks": set(),
    "grading": BASE | {"course_lib", "draw", "ranks", "simulated", "checks", "notebooks"},
    "course_lib": BASE | {"data", "draw", "ranks", "simulated", "checks"},
    "doctor": {"course_lib", "versions"},
    "jobs": {"course_lib"},  # scripts for torchrun
    "__main__": {"errors", "versions"},
    "versions": set(),
}

# Lines of code: without blank lines, comments and docstrings.
LARGEST_MODULE = 300
LARGEST: dict[str, int] = {
    "base": 1350,  # the words that all parts share: BASE and data
    "draw": 900,
    "ranks": 1550,
    "simulated": 3050,
    "checks": 2100,  # the engine
    "lessons": 2350,  # the exercises, modules lesson_*.py of the checks
    "notebooks": 600,
    "doctor": 250,
    "grading": 2550,
}
MOST_OF_AN_EXERCISE = 85  # lines of its lesson's module, all of them, hints included

PUBLIC = """
    CheckFailed CourseError Deadlock Event Hang Hazard Mismatch Network RankDied RankFailed Run
    Span Trace check compute device draw expect load_digits run simulate span
"""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The part of the package that a file belongs to: its folder, or the module itself."""
    inside = path.relative_to(PACKAGE)
    name = inside.parts[0] if len(inside.parts) > 1 else inside.stem
    return "course_lib" if name == "__init__" else name


def imported_parts(source: str, parts: set[str]) -> Iterator[str]:
    """The parts that a module imports from, at its top or later."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            words = name.split(".")
            if words[0] == "course_lib":
                yield words[1] if len(words) > 1 and words[1] in parts else "course_lib"


def wrong_arrows(files: dict[Path, str]) -> list[str]:
    parts = {part_of(path) for path in files}
    return [
        f"{path.relative_to(PACKAGE)} imports from {imported}"
        for path, source in files.items()
        for imported in imported_parts(source, parts)
        if imported not in ARROWS[part_of(path)] | {part_of(path)}
    ]


def test_imports_point_one_way():
    assert wrong_arrows({path: path.read_text() for path in modules()}) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("trace.py", "from course_lib.errors import CourseError"),
        ("draw/lanes.py", "import course_lib.ranks.launcher"),
        ("ranks/log.py", "from course_lib import draw"),
        ("checks/rules.py", "def f():\n    from course_staff.grading import judge"),
        ("data.py", "from course_lib import __main__"),
    ],
)
def test_an_arrow_against_the_grain_is_seen(file: str, line: str):
    files = dict.fromkeys([*modules(), PACKAGE / "grading" / "judge.py"], "")
    assert wrong_arrows(files) == []
    assert len(wrong_arrows(files | {PACKAGE / file: line})) == 1


def test_the_arrows_have_no_cycle():
    """But for the public surface, which is put together from the parts and used by the checks."""
    parts = {part: needs - {"course_lib"} for part, needs in ARROWS.items()}
    TopologicalSorter(parts).prepare()


@cache
def code_lines(source: str) -> int:
    """Lines that hold code, docstrings not counted."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
              tokenize.ENDMARKER}  # fmt: skip
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def test_lines_are_counted_as_said():
    text = '"""One.\n\nTwo.\n"""\n\n# three\nx = 1  # four\n\n\ndef f():\n    "a"\n'
    assert code_lines(text) == 2
    assert code_lines('x = """a\nb"""\n') == 2


def test_modules_can_be_printed():
    large = {
        str(path.relative_to(PACKAGE)): lines
        for path in modules()
        if not path.name.startswith("lesson_")
        and (lines := code_lines(path.read_text())) > LARGEST_MODULE
    }
    assert not large


def test_parts_stay_small():
    sizes = dict.fromkeys(LARGEST, 0)
    for path in modules():
        part = "base" if part_of(path) in BASE | {"data"} else part_of(path)
        part = "lessons" if path.name.startswith("lesson_") else part
        if part in sizes:
            sizes[part] += code_lines(path.read_text())
    assert {part: size for part, size in sizes.items() if size > LARGEST[part]} == {}


def test_an_exercise_stays_short():
    lessons = [path for path in modules() if path.name.startswith("lesson_")]
    lines = sum(len(path.read_text().splitlines()) for path in lessons)
    assert lines <= MOST_OF_AN_EXERCISE * len(exercises())


def test_the_public_names_are_these():
    assert set(course_lib.__all__) == set(PUBLIC.split())
    assert sorted(course_lib.__all__) == list(course_lib.__all__)
    assert all(hasattr(course_lib, name) for name in course_lib.__all__)


def test_importing_loads_no_plots_and_no_notebooks_and_starts_nothing():
    probe = (
        "import sys, threading, course_lib\n"
        "heavy = {'matplotlib', 'IPython', 'ipykernel', 'jupyter_client', 'jupyterlab', 'pytest',\n"
        "         'nbformat', 'nbclient', 'jupytext', 'sklearn', 'torchvision', 'hypothesis'}\n"
        "print(sorted(heavy & set(sys.modules)), threading.active_count())\n"
        "import psutil\n"
        "print(psutil.Process().children())\n"
    )
    command = [sys.executable, "-c", probe]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[] 1\n[]\n", done.stdout + done.stderr
