"""Every lesson there is: built, and compared by nbval. In a browser: test_browser_lessons.py.

Lessons are found, not listed: a new one in notebooks/src is tested from its first day.
"""

from __future__ import annotations

import ast
import re
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbval_run import compare

from course_check.copies.folders import Folders
from course_staff.authoring.build import LARGEST, drift, strangers
from course_staff.authoring.source import read_lesson

ROOT = Path(__file__).resolve().parents[1]
COURSE = Folders(ROOT)
SOURCES = sorted(COURSE.sources.glob("*.py"))

each_lesson = pytest.mark.parametrize("source", SOURCES, ids=[path.stem for path in SOURCES])


def solved_path(source: Path) -> Path:
    return COURSE.solutions / f"{source.stem}.ipynb"


def test_there_is_a_lesson_and_every_notebook_has_a_source():
    assert SOURCES, "no lesson in notebooks/src"
    assert not list(strangers(COURSE))


# ------------------------------------------------------------------------------- as it is built


@each_lesson
def test_notebooks_are_what_the_source_says(source: Path):
    assert not drift(source, COURSE)


@each_lesson
def test_exercises_are_documented_and_one_is_required(source: Path):
    answers = read_lesson(source).answers
    assert [answer.required for answer in answers].count(True) == 1
    for answer in answers:
        defined = {getattr(node, "name", ""): node for node in ast.parse(answer.stub).body}
        assert ast.get_docstring(defined[answer.exercise]), answer.exercise


@each_lesson
def test_stored_outputs_tell_nothing_of_the_machine(source: Path):
    path = solved_path(source)
    assert path.stat().st_size <= LARGEST
    texts = [
        text
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.get("outputs", ())
        for text in (output.get("text"), *output.get("data", {}).values())
        if text
    ]
    for foreign in (str(ROOT), str(Path.home()) + "/", "/tmp/", "\x1b[", "ipykernel_"):
        assert not [text for text in texts if foreign in text], foreign


@each_lesson
def test_the_cover_and_the_table_of_lessons_give_the_same_minutes(source: Path):
    cover = read_lesson(source).cells[0].text
    [time] = re.findall(r"\*\*Time\*\* \| (.+) \|", cover)
    [row] = re.findall(
        rf"\]\({source.stem}\.ipynb\) \|(.+)", (COURSE.learner / "README.md").read_text()
    )
    assert re.findall(r"\d+", row.split("|")[1]) == re.findall(r"\d+", time)


# ------------------------------------------------------------------------------- nbval


@pytest.mark.slow
@pytest.mark.timeout(400)
@each_lesson
def test_nbval_finds_every_stored_output_again(source: Path, installed: Path, tmp_path: Path):
    compare_by_nbval(source, installed, tmp_path)


def compare_by_nbval(source: Path, installed: Path, tmp_path: Path) -> None:
    """The same outputs again from the wheel, in an empty folder, and no file left behind."""
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", scratch)
        done = compare(solved_path(source), COURSE.rules, installed, tmp_path)
        names = [path.name for path in Path(scratch).iterdir()]
        left = [name for name in names if not name.startswith("torchinductor_")]
    assert done.returncode == 0, done.stdout[-8000:]
    assert left == []
