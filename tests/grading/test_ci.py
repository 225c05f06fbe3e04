"""The script of ``docs/ci``, run here as a CI would: the reference earns everything, the learner's
untouched notebook nothing."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LESSON = "00_hello_ranks"


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the course with nothing changed in it, whose environment is this one."""
    course = tmp_path_factory.mktemp("ci") / "course"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, files.stdout.decode().split("\0")):
        (course / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, course / name)
    own = ("-c", "user.name=course", "-c", "user.email=course@example.com")
    for words in (["init", "-q"], ["add", "--all"], [*own, "commit", "-q", "-m", "The course"]):
        subprocess.run(["git", *words], cwd=course, check=True)
    venv = course / ".venv"
    venv.mkdir()
    for part in Path(sys.prefix).iterdir():
        (venv / part.name).symlink_to(part)
    for stamp in (".ready", ".ready-cpu"):
        (venv / stamp).unlink(missing_ok=True)
        (venv / stamp).touch()
    return course


def hand_in(folder: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "notebooks" / "solutions" / f"{LESSON}.ipynb", folder / "solved.ipynb")
    shutil.copy(ROOT / "notebooks" / f"{LESSON}.ipynb", folder / "untouched.ipynb")


def marks(out: Path) -> dict[str, tuple[str, str]]:
    with (out / "grades.csv").open() as file:
        return {row["submission"]: (row["points"], row["my_share reason"])
                for row in csv.DictReader(file)}  # fmt: skip


def shell(script: str, folder: Path, **more: str) -> None:
    """As a CI runs a step: bash, which stops at the first command that fails."""
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], cwd=folder, text=True,
        env=os.environ | more, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
def test_the_generic_script_gives_full_marks_and_none(course: Path, tmp_path: Path):
    hand_in(tmp_path / "inbox")
    shell("docs/ci/generic.sh", course, COURSE=str(course), INBOX=str(tmp_path / "inbox"),
          OUT=str(tmp_path / "marks"))  # fmt: skip
    assert marks(tmp_path / "marks") == {
        "solved": ("10", ""),
        "untouched": ("0", "not written yet"),
    }


def test_the_generic_script_refuses_a_course_with_local_changes(course: Path, tmp_path: Path):
    changed = tmp_path / "course"
    shutil.copytree(course, changed, symlinks=True)
    with (changed / "course_lib" / "grading" / "marks.py").open("a") as file:
        file.write("# better marks\n")
    done = subprocess.run(["docs/ci/generic.sh"], cwd=changed, capture_output=True, text=True,
                          env=os.environ | {"COURSE": str(changed), "INBOX": "x", "OUT": "y"},
                          )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, f"{changed} has local changes\n")
