"""What makes and grades the course uses of the library what is public, and the names listed here.

A name more is a decision: whoever changes it has instructors to think of, too. A name that nobody
uses any more leaves the list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import course_lib
from course_lib import draw
from course_lib.versions import FOR_LEARNERS

ROOT = Path(__file__).resolve().parents[2]
# By module, besides what ``from course_lib import …`` offers to everybody.
BESIDES = """
course_check.cases: Case
course_check.checking: verdict_on
course_check.compare: real show
course_check.copies.folders: Folders LessonError replace_file
course_check.copies.notebook: fingerprint to_text
course_check.exercise: Exercise Play
course_check.harness.answer: Answer AtImport call_all
course_check.harness.kept: Kept
course_check.harness.seen: Seen left
course_check.namespace: CellText Namespace binds namespace statements
course_check.play: Broken CannotCheck Player make_play note_result
course_check.verdict: Verdict
course_exercises.catalogue: exercises find
course_exercises.drivers: __path__
course_exercises.drivers.lives: start
course_lib.collectives: COLLECTIVES MAKE_GROUPS
course_lib.context: Context install seed_rank
course_lib.errors: Blocked NotStarted
course_lib.launching.forkserver: ForkServer
course_lib.progress_line: ProgressLine
course_lib.rendezvous: torchrun_names
course_lib.trace: Line Span
course_lib.user_code: find_frame line_at line_of show_lines stack_lines
course_lib.versions: FOR_LEARNERS OLDEST_PYTHON PACKAGES
course_sim.agenda: Abandoned
course_sim.ends.poison: Buffers
course_sim.ends.simulated_group: SimulatedGroup
course_sim.exchange.collective: Part
course_sim.exchange.combine: Passed Tensors
course_sim.exchange.groups: Channel
course_sim.exchange.mail: Recv Send
course_sim.isolation.compat: enter_world leave_world missing separate_worlds store
course_sim.isolation.private: CONFINED
course_sim.rank: Rank current
course_sim.records: Site
course_sim.tensor_memory: contents
"""
PUBLIC = {"course_lib": {*course_lib.__all__, "__file__"}, "course_lib.draw": draw.__all__}


def used(source: str) -> Iterator[tuple[str, str]]:
    """Modules of the library and of the exercises, and their names that a source uses."""
    tree = ast.parse(source)
    modules = {}  # by the name that stands for one here
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if is_module(whole := f"{node.module}.{alias.name}"):
                    modules[alias.asname or alias.name] = whole
                else:
                    yield str(node.module), alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (module := modules.get(ast.unparse(node.value))):
            yield module, node.attr


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def besides(*sources: str) -> set[str]:
    """What these sources use that is not public, as "course_lib.trace.Line"."""
    found = {pair for source in sources for pair in used(source)}
    return {
        f"{module}.{name}"
        for module, name in found
        if module.partition(".")[0] in FOR_LEARNERS and name not in PUBLIC.get(module, ())
    }


def test_staff_uses_what_is_public_and_these_names():
    listed = [line.split(": ") for line in BESIDES.strip().splitlines()]
    wanted = {f"{module}.{name}" for module, names in listed for name in names.split()}
    sources = (path.read_text() for path in (ROOT / "course_staff").rglob("*.py"))
    assert besides(*sources) == wanted
    assert not [name for name in wanted if "._" in name and not name.endswith("__")]


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("from course_lib import simulate, draw\ndraw.waits(0)", set()),
        ("from course_lib.trace import Line", {"course_lib.trace.Line"}),
        ("def f():\n    from course_exercises import INDEX", {"course_exercises.INDEX"}),
        ("import course_tools.doctor as d\nd.main()", {"course_tools.doctor.main"}),
        ("from course_lib import trace\ntrace._x", {"course_lib.trace._x"}),
    ],
)
def test_a_use_is_seen(source: str, seen: set[str]):
    assert besides(source) == seen
