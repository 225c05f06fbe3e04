"""Exercises lie where the index says. That a lesson can be handed out alone: test_release."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

import course_exercises
from course_check.exercise import Diagnosis
from course_check.usual_diagnoses import gravest
from course_exercises.catalogue import exercises, find

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted(course_exercises.INDEX)
FILES = sorted((ROOT / "course_exercises").glob("*.py"))


def imported(file: Path) -> set[str]:
    """All modules that a file names in an import, at its top or later."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_nothing_imports_a_lesson(file: Path) -> None:
    """What several lessons need lies in a file of its own, which goes out with each of them."""
    assert [name for name in sorted(imported(file)) if ".lesson_" in name] == []


def test_the_index_names_every_file_with_exercises() -> None:
    assert [file.stem for file in FILES if file.stem.startswith("lesson_")] == LESSONS


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_declares_what_the_index_says_and_imports_no_other(
    lesson: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exercises()  # all are there again afterwards
    for name in [name for name in sys.modules if name.startswith("course_exercises.")]:
        monkeypatch.delitem(sys.modules, name)
    importlib.import_module(f"course_exercises.{lesson}")
    declared = sys.modules["course_exercises.declare"].declared
    assert sorted(declared) == sorted(course_exercises.INDEX[lesson])
    assert {known.number[:2] for known in declared.values()} == {lesson[7:9]}
    assert [name for name in LESSONS if f"course_exercises.{name}" in sys.modules] == [lesson]


def is_named_as_a_finding(diagnosis: Diagnosis) -> bool:
    return getattr(diagnosis.when, "__qualname__", "").startswith(f"{gravest.__name__}.")


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_hint_without_a_mistake_is_named_as_a_finding_is(lesson: str) -> None:
    """Of others nobody would ever hear: their names stand in the table of hints alone."""
    source = (ROOT / "course_exercises" / f"{lesson}.py").read_text()
    rules = "".join(p.read_text() for p in (ROOT / "course_check").glob("*.py"))
    for name in course_exercises.INDEX[lesson]:
        named = (d for d in find(name).diagnoses if is_named_as_a_finding(d))
        for hint in named:
            said = source.count(f'"{hint.id}"') + rules.count(f'"{hint.id}"')
            assert said > 1, f"{name}: nothing is found that is called {hint.id}"
