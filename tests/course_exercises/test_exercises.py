"""Exercises lie where the index says. That a lesson can be handed out alone: test_release."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import course_exercises
from course_exercises.catalogue import exercises

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted(course_exercises.INDEX)
FILES = sorted((ROOT / "course_exercises").glob("*.py"))


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
