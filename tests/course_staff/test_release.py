"""What goes out to students: everything they need, and no line of a solution."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
import zoo
from conftest import TESTS
from test_readme import links

from course_check.copies.notebook import fingerprint
from course_exercises import INDEX
from course_lib.__main__ import main
from course_lib.versions import FOR_LEARNERS
from course_staff import manifest
from course_staff.authoring.release import leaked, telling
from course_staff.authoring.source import read_lesson

pytestmark = pytest.mark.slow

ROOT = TESTS.parent
SOURCES = sorted((ROOT / "notebooks" / "src").glob("*.py"))


def release(numbers: str, folder: Path) -> int:
    kept, out = str(folder / "kept.json"), str(folder / "out")
    return main(["release", "--lessons", numbers, "--manifest", kept, "--out", out])


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of one lesson, which needs a file that lessons share."""
    folder = tmp_path_factory.mktemp("release")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        assert release("06", folder) == 0
    return folder / "out"


def test_a_leak_is_seen(tmp_path: Path) -> None:
    lessons = [read_lesson(SOURCES[0])]
    line = next(li for a in lessons[0].answers for li in a.solution_lines if telling(li))
    cells = json.dumps({"cells": [{"source": ["x\n", line]}]})
    for name, text in (("a.py", f"    {line}\n"), ("b.md", f"x\n{line}"), ("c.ipynb", cells)):
        (tmp_path / name).write_text(text)
        assert [found.split(":")[0] for found in leaked(tmp_path, lessons)] == [name]
        (tmp_path / name).unlink()


def test_only_what_students_need_is_in_it(out: Path) -> None:
    names = {str(p.relative_to(out)) for p in out.rglob("*")}
    staff = "course_staff tests .git tools figures/make.py"
    solved = "notebooks/src notebooks/solutions notebooks/manifest.json"
    assert not names & {*staff.split(), *solved.split()}
    needed = "AGENTS.md README.md Makefile requirements.txt LICENSE course_check/play.py"
    assert names >= {*needed.split(), "notebooks/06_ddp.ipynb"}
    agents = (out / "AGENTS.md").read_text()
    assert "tutor" in agents and "do not solve" in agents
    kept = manifest.read(out.with_name("kept.json"))
    assert list(kept.lessons) == ["06_ddp"]


def test_no_line_of_a_solution_is_in_what_any_release_is_made_of(out: Path, tmp_path: Path) -> None:
    lessons = [read_lesson(source) for source in SOURCES]
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(notebook, tmp_path)
    for folder in (out, tmp_path, ROOT / "course_exercises"):
        assert not list(leaked(folder, lessons))


def test_a_wheel_of_it_lies_beside_its_notebooks(out: Path) -> None:
    [wheel] = (out / "notebooks").glob("*.whl")
    for notebook in (out / "notebooks").glob("*.ipynb"):
        install = json.loads(notebook.read_text())["cells"][1]
        assert f'"{wheel.name}"' in "".join(install["source"])
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    packages = [out / name for name in FOR_LEARNERS]
    there = {str(p.relative_to(out)) for top in packages for p in top.rglob("*") if p.is_file()}
    assert inside == there
    assert not list(out.glob("build")) + list(out.glob("*.egg-info"))


def test_every_link_of_a_lesson_that_is_handed_out_alone_leads_somewhere(out: Path) -> None:
    pages = [*out.rglob("*.md"), *out.rglob("*.ipynb")]
    dead = [
        f"{page.relative_to(out)}: {link}"
        for page in pages
        for link in links(page)
        if not (page.parent / link).exists()
    ]
    assert dead == []
    for cell in nbformat.read(out / "notebooks" / pages[-1].name, as_version=4).cells:
        assert cell.metadata["given"] == fingerprint(cell.source), "as it was handed out"
    text = next((out / "notebooks").glob("*.ipynb")).read_text()
    assert "docs.pytorch.org" in text and "data:image/png" in text
    way = (out / "notebooks" / "README.md").read_text()
    assert re.findall(r"^\| (\d\d) ", way, re.M) == ["06"]
    assert "solutions" not in way


COMMANDS = """
import sys
from course_lib.__main__ import main
from course_exercises.catalogue import exercises
print(*sorted(exercises()))
print(main(["update", "--missing"]), main(["check", *sys.argv[1:]]))
main(["grade", "x"])
"""


def test_the_library_offers_there_what_there_is(out: Path, tmp_path: Path) -> None:
    """Its commands, and the exercises of its lesson, which can be checked."""
    answer = tmp_path / "answer.py"
    answer.write_text(zoo.source("accumulate_step", "solution"))
    words = [sys.executable, "-c", COMMANDS, "accumulate_step", str(answer)]
    environ = os.environ | {"PYTHONPATH": str(out)}
    done = subprocess.run(words, cwd=out, env=environ, text=True, capture_output=True, timeout=120)
    known, _, said = done.stdout.partition("\n")
    assert known.split() == sorted(INDEX["lesson_06_ddp"]), done.stderr
    assert "passed" in said and said.endswith("0 0\n"), said
    assert "grade: for instructors; it needs the whole course" in done.stderr


def test_a_release_is_made_into_an_empty_folder_only(tmp_path: Path, capsys) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").touch()
    assert release("00", tmp_path) == 2
    assert "is not empty" in capsys.readouterr().err
