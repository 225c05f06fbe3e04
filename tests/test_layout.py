"""The shape of the packages: which way imports point, how large they are, what is public."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import course_lib
from course_exercises.catalogue import exercises
from course_lib.versions import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
# What each room may import from, besides itself. "words" are the library's plain modules, which
# everything shares; "facade" is what ``from course_lib import …`` offers.
LIBRARY = {"words", "diagnosis", "draw", "recording", "launching", "facade"}
ARROWS: dict[str, set[str]] = {
    "words": set(),
    "diagnosis": {"words"},
    "draw": {"words"},
    "recording": {"words", "diagnosis"},
    "launching": {"words", "diagnosis", "recording"},
    "course_sim": {"words", "diagnosis"},
    "course_tools": {"words", "diagnosis", "recording", "facade"},
    "harness": {"words", "diagnosis"},
    "course_check": LIBRARY | {"course_sim", "harness"},
    "drivers": {"words", "harness", "course_tools"},
    "course_exercises": LIBRARY
    | {"course_sim", "harness", "course_check", "course_tools", "drivers"},
    "course_staff": LIBRARY
    | {"course_sim", "harness", "course_check", "course_exercises", "drivers"},
    # What points up: the table of public names, the commands, and the door that people type.
    "facade": {"words"},
    "__main__": {"words", "course_tools", "course_check", "course_exercises", "course_staff"},
    "door": {"words", "course_tools"},
}
INSIDE = {
    "course_lib": ("diagnosis", "draw", "recording", "launching", "__main__"),
    "course_check": ("harness",),
    "course_exercises": ("drivers",),
}

# Lines of code as the formatter writes them: blank lines, comments and docstrings are free.
# course_lib and course_sim were to have 4,400 and 3,900. Above that stands what scripts for GPUs
# need where there are none (540 lines that answer for CUDA, 170 for packages that keep something
# of a rank), and pictures and messages that learners use. No dead code was found in them.
MOST = {
    "course_lib": 4526,
    "course_sim": 4510,
    "course_check": 2250,
    "course_tools": 2290,
    "course_exercises, shared": 1310,
    "course_staff": 3150,
}
MOST_OF_TESTS = 18500
MOST_OF_AN_EXERCISE = 102  # lines of its lesson, hints included, on average; 100 are aimed at
MOST_OF_A_MODULE = 300
DOORS = (["watch"], ["rehearse"])  # of course_lib: what people type

PUBLIC = """
    CheckFailed CourseError Deadlock Event GPU Hang Hazard Mismatch Network RankDied RankFailed Run
    Span Trace check compare_gradients compute count_memory device draw expect gradients load_digits
    run simulate span
"""


@cache
def sources() -> dict[str, str]:
    """By path, as "course_lib/trace.py", the text of every module."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def room_of(module: str) -> str:
    """The room of a module, as "launching" for "course_lib.launching.world"."""
    package, *inside = module.split(".")
    if inside and inside[0] in INSIDE.get(package, ()):
        return inside[0]
    if package != "course_lib":
        return package
    return "facade" if not inside else "door" if inside in DOORS else "words"


def imported(source: str, modules: set[str]) -> Iterator[str]:
    """The modules of these packages that a module imports, at its top or later."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else str(node.module) for name in whole]
        else:
            continue
        yield from (name for name in names if name in modules)


def graph(files: Mapping[str, str]) -> dict[str, set[str]]:
    modules = {module_of(path) for path in files}
    return {module_of(path): {*imported(text, modules)} for path, text in files.items()}


def wrong_arrows(files: Mapping[str, str]) -> list[str]:
    return [
        f"{module} imports {other}"
        for module, others in graph(files).items()
        for other in sorted(others)
        if room_of(other) not in ARROWS[room_of(module)] | {room_of(module)}
        or (".lesson_" in module and ".lesson_" in other)
    ]


def as_it_runs(text: str) -> str:
    """A module without what it imports for type checkers alone."""
    tree = ast.parse(text)
    kept = (n for n in tree.body if not isinstance(n, ast.If) or "CHECKING" not in ast.dump(n.test))
    tree.body = list(kept)
    return ast.unparse(tree)


def circle(files: Mapping[str, str]) -> list[str]:
    """Modules that import one another in a circle, but for the facade; none where there is none."""
    arrows = graph({path: as_it_runs(text) for path, text in files.items()})
    try:
        TopologicalSorter({m: o - {m, "course_lib"} for m, o in arrows.items()}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_point_one_way():
    assert wrong_arrows(sources()) == []


def test_no_modules_import_one_another_in_a_circle():
    assert circle(sources()) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("course_lib/trace.py", "import course_lib.launching.launcher"),
        ("course_lib/recording/log.py", "from course_lib import draw"),
        ("course_lib/errors.py", "def f():\n    from course_sim import simulate"),
        ("course_check/rules.py", "import course_exercises.formulas"),
        ("course_exercises/lesson_06_ddp.py", "import course_exercises.lesson_00_hello_ranks"),
    ],
)
def test_an_arrow_against_the_grain_is_seen(file: str, line: str):
    files = dict.fromkeys(sources(), "")
    assert wrong_arrows(files) == []
    assert len(wrong_arrows(files | {file: line})) == 1


def test_a_circle_is_seen():
    files = dict.fromkeys(sources(), "")
    files |= {
        "course_lib/recording/log.py": "import course_lib.recording.stack",
        "course_lib/recording/stack.py": "def f():\n    from course_lib.recording import log",
    }
    assert set(circle(files)) == {"course_lib.recording.log", "course_lib.recording.stack"}


# What is no line of code, though it is a token.
FREE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def code_lines(text: str) -> int:
    """How many lines of a module hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in FREE | {tokenize.ENDMARKER}:
            lines |= {*range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines -= {*range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)}
    return len(lines)


def test_what_explains_is_not_counted():
    explained = '"""A module."""\n\n# Why.\nx = f(\n    1,\n)  # three lines\n'
    text = explained + '\n\ndef f():\n    """Says."""\n'
    assert code_lines(text) == 4


def lines(*starts: str) -> int:
    """Lines of code of all modules whose paths start so."""
    return sum(code_lines(text) for path, text in sources().items() if path.startswith(starts))


def sizes() -> dict[str, int]:
    counted = {package: lines(f"{package}/") for package in PACKAGES if package in MOST}
    shared = lines("course_exercises/") - lines("course_exercises/lesson_")
    return counted | {"course_exercises, shared": shared}


def test_packages_stay_small():
    counted = sizes()
    assert counted.keys() == MOST.keys()
    assert {room: size for room, size in counted.items() if size > MOST[room]} == {}


@pytest.mark.slow
def test_tests_stay_few():
    texts = (path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    assert sum(map(code_lines, texts)) <= MOST_OF_TESTS


@pytest.mark.slow
def test_every_soak_finds_what_it_imports():
    """Soaks run seldom: nobody else would see that a folder of tests has got another name."""
    options = ("-o", "python_files=soak_*.py", "-o", "norecursedirs=.*", "-p", "no:cacheprovider")
    command = (sys.executable, "-m", "pytest", "--collect-only", "-q", *options, "tests/soak")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_an_exercise_stays_short():
    assert lines("course_exercises/lesson_") <= MOST_OF_AN_EXERCISE * len(exercises())


def test_modules_can_be_printed():
    own = {path: text for path, text in sources().items() if "/lesson_" not in path}
    assert [p for p, text in own.items() if code_lines(text) > MOST_OF_A_MODULE] == []


def test_lines_are_the_formatters():
    """A line that the formatter is kept off counts for one and holds three."""
    kept_off = re.compile(r"#\s*(fmt:\s*(skip|off)|yapf:\s*disable)")
    assert [path for path, text in sources().items() if kept_off.search(text)] == []


def test_the_public_names_are_these():
    assert set(course_lib.__all__) == set(PUBLIC.split())
    assert sorted(course_lib.__all__) == list(course_lib.__all__)
    assert all(hasattr(course_lib, name) for name in course_lib.__all__)


PROBE = """
import sys, threading, course_lib
heavy = {'matplotlib', 'IPython', 'ipykernel', 'jupyter_client', 'jupyterlab', 'pytest',
         'nbformat', 'nbclient', 'jupytext', 'sklearn', 'torchvision', 'hypothesis'}
print(sorted(heavy & set(sys.modules)), threading.active_count())
import psutil
print(psutil.Process().children())
from course_lib import run, simulate, check
ours = [m for name, m in sys.modules.items() if name.startswith('course_')]
print(len(ours), sum(len(open(m.__file__).readlines()) for m in ours))
"""


@pytest.mark.slow
def test_importing_loads_no_plots_and_no_notebooks_and_as_much_as_the_guide_says():
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    nothing, nobody, loaded = done.stdout.splitlines()
    assert (nothing, nobody) == ("[] 1", "[]"), done.stderr
    modules, lines = map(int, loaded.split())
    guide = (ROOT / "course_lib" / "README.md").read_text()
    (said,) = re.findall(r"loads (\d+) modules, ([\d,]+) lines", guide)
    assert int(said[0]) == modules
    assert abs(int(said[1].replace(",", "")) - lines) < 100


def test_one_name_is_one_thing():
    """No two modules of one name, so that a name in an import or a traceback says which it is."""
    names = Counter(path.rpartition("/")[2] for path in sources())
    twice = {name for name, count in names.items() if count > 1}
    assert twice <= {"__init__.py", "__main__.py"}
