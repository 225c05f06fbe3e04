"""What makes and grades the course uses of the library what is public, and the modules listed here.

A module more is a decision: whoever changes it has instructors to think of, too. A module that
nobody uses any more leaves the list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import course_lib
from course_lib import draw
from course_lib.versions import FOR_LEARNERS

ROOT = Path(__file__).resolve().parents[2]
# By package, besides what ``from course_lib import …`` offers to everybody.
BESIDES = {
    "course_lib": "collectives context diagnosis.hazard errors launching.forkserver progress_line "
    "rendezvous trace user_code versions",
    "course_sim": "agenda ends.poison ends.simulated_group exchange.collective exchange.combine "
    "exchange.groups exchange.mail isolation.compat isolation.private rank records tensor_memory",
    "course_check": "cases checking compare copies.folders copies.notebook exercise harness.answer "
    "harness.kept harness.seen namespace play verdict",
    "course_exercises": "catalogue drivers drivers.lives",
}
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


def besides(*sources: str) -> set[tuple[str, str]]:
    """What these sources use that is not public: modules and names."""
    found = {pair for source in sources for pair in used(source)}
    return {
        (module, name)
        for module, name in found
        if module.partition(".")[0] in FOR_LEARNERS and name not in PUBLIC.get(module, ())
    }


def test_staff_uses_what_is_public_and_these_modules():
    wanted = {f"{package}.{name}" for package, text in BESIDES.items() for name in text.split()}
    found = besides(*(path.read_text() for path in (ROOT / "course_staff").rglob("*.py")))
    assert {module for module, _ in found} == wanted
    assert not [name for _, name in found if name.startswith("_") and not name.endswith("__")]


def test_a_use_is_seen():
    assert besides("from course_lib import simulate, draw\ndraw.waits(0)") == set()
    for source in (
        "def f():\n    from course_lib.trace import Line",
        "import course_lib.trace as t",
    ):
        assert besides(f"{source}\nt.Line") == {("course_lib.trace", "Line")}
