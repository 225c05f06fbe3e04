"""The templates of ``docs/ci``, run step by step as their CI would, with what the network gives put
in its place: the reference earns everything, the learner's untouched notebook nothing."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner

from course_lib.__main__ import parser

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "docs" / "ci"
LESSON = "00_hello_ranks"
WANTED = {"solved": ("10", ""), "untouched": ("0", "not written yet")}
GIT = ("git", "-c", "user.name=course", "-c", "user.email=course@example.com")
GRADED = """#!/bin/bash
set -euo pipefail
test -x "$COURSE/.venv/bin/python" -a -f "$POLICY" -a -f "$ROSTER" -a "$OUT" = "$PWD/class/marks"
find "$INBOX" -name "*.ipynb" -size +1k | grep -q .
tar -xf {marks}
"""
ASKED = """#!/bin/bash
echo "$@" > asked
tar -xf {marks} -C "$HOME" --strip-components=2
"""
pytestmark = pytest.mark.timeout(300)


@dataclass
class World:
    """What there is besides the runners: an instructor's repository, and those of two students."""

    folder: Path
    venv: Path
    start: str = ""  # commit

    @property
    def origin(self) -> Path:
        return self.folder / "course.git"

    def checkout(self, name: str) -> Path:
        """A runner's own, with the environment of these tests in place of one that is installed."""
        target = self.folder / name
        git(self.folder, "clone", "-q", f"file://{self.origin}", str(target))
        (target / ".venv").symlink_to(self.venv)
        for stamp in (".ready", ".ready-cpu"):
            (self.venv / stamp).unlink(missing_ok=True)
            (self.venv / stamp).touch()
        return target

    def shell(self, script: str, folder: Path, **more: str) -> None:
        """As a CI runs a step: bash, which stops at the first command that fails."""
        path = f"{self.folder / 'bin'}:{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", f"exec 2>&1\n{script}"]
        env = {"PATH": path, "HOME": str(self.folder)} | more
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
        done = subprocess.run(words, cwd=folder, env=env, timeout=250, **pipes)
        assert done.returncode == 0, done.stdout[-4000:]

    def marks(self) -> dict[str, tuple[str, str]]:
        """Those that have been kept in the instructor's repository."""
        text = git(self.origin, "show", "HEAD:class/marks/grades.csv")
        rows = [row for row in csv.DictReader(text.splitlines()) if row["lesson"]]
        return {row["student"]: (row["points"], row["my_share reason"]) for row in rows}


def git(folder: Path, *words: str) -> str:
    done = subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def committed(folder: Path) -> None:
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "-m", "All")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A course of one lesson, so that no runner waits for the others."""
    folder = tmp_path_factory.mktemp("ci")
    course, venv = folder / "course", folder / "venv"
    for name in git(ROOT, "ls-files", "-z").rstrip("\0").split("\0"):
        if not re.search(r"^tests/|/(?!00)\d\d_\w+\.(py|ipynb)$", name):
            (course / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, course / name)
    kept = course / "notebooks" / "manifest.json"
    manifest = json.loads(kept.read_text())
    manifest["lessons"] = {LESSON: manifest["lessons"][LESSON]}
    kept.write_text(json.dumps(manifest, indent=1) + "\n")
    rows = ["id,submission,repository"]
    for name, source in (("solved", "solutions/"), ("untouched", "")):
        work = folder / name / "work"
        work.mkdir(parents=True)
        shutil.copy(ROOT / "notebooks" / f"{source}{LESSON}.ipynb", work)
        (work / "link.ipynb").symlink_to("/etc/passwd")
        shutil.copy(ROOT / "notebooks" / f"{LESSON}.ipynb", folder / name)
        committed(folder / name)
        rows.append(f"{name},s{len(rows) - 1},file://{folder / name}")
    (course / "class").mkdir()
    (course / "class" / "roster.csv").write_text("\n".join([*rows, "gone,gone,file:///gone"]))
    (course / "class" / "policy.toml").write_text("[limits]\nmemory_mb = 512\n")
    committed(course)
    git(folder, "clone", "-q", "--bare", str(course), "course.git")
    (folder / "bin").mkdir()
    (folder / "bin" / "sudo").symlink_to("/bin/true")
    (folder / ".gitconfig").write_text(
        f'[url "file://{folder}/course.git"]\n'
        "insteadOf = https://oauth2:push@gitlab.example/class/course.git\n"
    )
    venv.mkdir()
    for part in Path(sys.prefix).iterdir():
        (venv / part.name).symlink_to(part)
    return World(folder, venv, git(course, "rev-parse", "HEAD").strip())


def by_github(world: World) -> Path:
    """Jobs in their order, each on a fresh machine; artifacts are all that goes from one to the
    next."""
    jobs = yaml.safe_load((CI / "github-actions.yml").read_text())["jobs"]
    assert [name for name, job in jobs.items() if "secrets." in str(job)] == ["collect"]
    writing = [name for name, job in jobs.items() if "write" in job["permissions"].values()]
    assert writing == ["keep"]
    kept = world.folder / "github-artifacts"
    kept.mkdir()
    for name, job in jobs.items():
        folder = world.folder / f"github-{name}"
        values = {"github.workspace": str(folder), "secrets.COLLECT_TOKEN": "t"}
        for step in job["steps"]:
            action, given = step.get("uses", "").partition("@")[0], step.get("with", {})
            if action == "actions/checkout":
                assert given.get("persist-credentials") is False or name == "keep"
                world.checkout(folder.name)
            elif action == "actions/upload-artifact":
                shutil.copy(folder / given["path"], kept / given["name"])
            elif action == "actions/download-artifact":
                shutil.copy(kept / given["name"], folder / f"{given['name']}.tar")
            elif action:
                assert action == "actions/setup-python"
            else:
                env = {k: filled(v, values) for k, v in step.get("env", {}).items()}
                world.shell(step["run"], folder, **env)
    return kept / "marks"


def filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ (.+?) \}\}", lambda m: values.get(m[1], ""), text)


def by_gitlab(world: World, marks: Path) -> None:
    whole = yaml.safe_load((CI / "gitlab-ci.yml").read_text())
    scoped = {"collect": {"COLLECT_TOKEN": "t"}, "keep": {"PUSH_TOKEN": "push"}}
    jobs: dict[str, Any] = {name: whole[name] for name in whole["stages"]}
    artifacts: list[Path] = []
    for name, job in jobs.items():
        folder = world.checkout(f"gitlab-{name}")
        if name == "grade":  # by the same script as on GitHub: its marks are taken
            (folder / "docs/ci/generic.sh").write_text(GRADED.format(marks=marks))
        for file in artifacts:
            shutil.copy(file, folder)
        env = {"CI_PROJECT_DIR": str(folder), "CI_COMMIT_BRANCH": "main"}
        env |= {"CI_SERVER_HOST": "gitlab.example", "CI_PROJECT_PATH": "class/course"}
        env |= {k: Template(v).substitute(env) for k, v in job.get("variables", {}).items()}
        env |= scoped.get(job.get("environment", ""), {})
        world.shell("\n".join(job["script"]), folder, **env)
        artifacts += [folder / path for path in job.get("artifacts", {}).get("paths", [])]


@pytest.fixture(scope="module")
def marks(world: World) -> Path:
    """What GitHub's second job hands to its third; the others grade by the same script."""
    return by_github(world)


@pytest.mark.slow
def test_a_pipeline_gives_full_marks_and_none(world: World, marks: Path) -> None:
    by_github_are = world.marks()
    git(world.origin, "update-ref", "refs/heads/main", world.start)
    by_gitlab(world, marks)
    assert by_github_are == world.marks() == WANTED
    assert git(world.origin, "ls-tree", "-r", "--name-only", "HEAD", "class/marks/work/.secret")


@pytest.mark.slow
def test_classroom50s_autograder_writes_its_result(marks: Path, world: World) -> None:
    """It asks for a grading of the student's folder, and tells what that says of two notebooks."""
    course, student = world.folder / "classroom50", world.folder / "student"
    python, names = course / ".venv/bin/python", "CLASSROOM ASSIGNMENT OWNER COMMIT_URL RELEASE_URL"
    python.parent.mkdir(parents=True)
    python.write_text(ASKED.format(marks=marks))
    python.chmod(0o755)
    (student / "work").mkdir(parents=True)
    given = {"COURSE": str(course), "SUBMISSION_TAG": "1", **dict.fromkeys(names.split(), "x")}
    world.shell(f"{sys.executable} {CI / 'classroom50.py'}", student, **given)
    asked = parser().parse_args((course / "asked").read_text().split()[2:])
    assert (asked.command, asked.submissions) == ("grade", [str(student / "work")])
    result = json.loads((student / "result.json").read_text())
    assert result["schema"] == "classroom50/result/v1" and type(result["score"]) is int
    assert (result["score"], result["max-score"]) == (10, 20)
    told = [(test["test-name"], test["passed"], test["score"]) for test in result["tests"]]
    assert told == [("00.1 my_share", True, 10), ("00.1 my_share", False, 0)]
    about = "classroom assignment assignment_type owner submission commit release review datetime"
    assert result.keys() == {*about.split(), "schema", "score", "max-score", "tests"}


@pytest.mark.slow
def test_the_script_refuses_a_course_with_local_changes(world: World):
    changed = world.checkout("changed")
    with (changed / "course_staff" / "grading" / "marks.py").open("a") as file:
        file.write("# better marks\n")
    given = os.environ | {"COURSE": str(changed), "INBOX": "x", "OUT": "y"}
    done = subprocess.run(
        [CI / "generic.sh"], cwd=changed, env=given, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, f"{changed} has local changes\n")


def test_the_container_holds_all_that_grades() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (CI / "Containerfile").read_text(), re.M)
    packages = {path.parent.name for path in ROOT.glob("course_*/__init__.py")}
    wanted = {"notebooks", "requirements.txt", *packages}
    assert wanted <= {name for line in copied for name in line.split()}


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", [CI / "github-actions.yml", *ROOT.glob(".github/workflows/*.yml")]),
        ("gitlab-ci", [CI / "gitlab-ci.yml"]),
    ],
)
def test_a_template_is_what_its_ci_reads(schema: str, files: list[Path]) -> None:
    words = ["--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = CliRunner().invoke(check_jsonschema.main, words)
    assert done.exit_code == 0, done.output
