"""Every wrong answer gets its own diagnosis, every right one full marks, every stub one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from course_lib.checks.checking import verdict_on
from course_lib.checks.cli import read_answer
from course_lib.checks.exercise import exercises, find
from course_lib.checks.play import Answer
from course_lib.checks.verdict import Verdict

TESTS = Path(__file__).resolve().parents[1]
WRONG = sorted((TESTS / "wrong_answers").glob("*/*.py"))
RIGHT = sorted((TESTS / "right_answers").glob("*/*.py"))


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def mine(paths: list[Path]) -> list[Path]:
    return [path for path in paths if path.parent.name in exercises()]


def verdict_of(path: Path) -> Verdict:
    answer = read_answer(path.parent.name, str(path))
    return verdict_on(find(path.parent.name), answer)


@pytest.mark.slow
@pytest.mark.parametrize("path", mine(WRONG), ids=name)
def test_a_wrong_answer_gets_its_own_diagnosis(path: Path) -> None:
    stated = re.match(r'"""Diagnosis: (\S+)\n\n\S', path.read_text())
    assert stated, "a wrong answer states its diagnosis, and why people write it"
    verdict = verdict_of(path)
    assert verdict.diagnosis == stated[1], str(verdict)
    assert not verdict.passed
    assert verdict.points < 100
    level = verdict.first_failing
    assert level and level.play and level.diagnosis
    assert level.diagnosis.when(level.evidence.of(level.play)), f"not to be seen in\n{verdict}"


@pytest.mark.slow
@pytest.mark.parametrize("path", mine(RIGHT), ids=name)
def test_a_right_answer_gets_full_marks(path: Path) -> None:
    verdict = verdict_of(path)
    assert verdict.passed, str(verdict)
    assert verdict.points == 100


@pytest.mark.slow
@pytest.mark.parametrize("exercise", sorted(exercises()))
def test_a_stub_says_one_line(exercise: str) -> None:
    stub = f'def {exercise}(*args):\n    raise NotImplementedError("not written yet")\n'
    verdict = verdict_on(find(exercise), Answer(exercise, source=stub, file="stub.py"))
    assert str(verdict) == f"{find(exercise).title}: not written yet"
    assert not verdict.passed
    assert verdict.points == 0
    assert verdict.diagnosis == "not-written"


@pytest.mark.parametrize("exercise", sorted(exercises()))
def test_an_exercise_has_two_right_answers_and_a_wrong_one_for_each_diagnosis(
    exercise: str,
) -> None:
    assert len([p for p in RIGHT if p.parent.name == exercise]) >= 2
    lesson = find(exercise).number.split(".")[0]
    stated = {p.read_text().split()[1] for p in WRONG if p.parent.name == exercise}
    assert {f"{lesson}.{d.id}" for d in find(exercise).diagnoses} <= stated
