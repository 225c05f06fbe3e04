"""A notebook alone: the wheel, installed by the notebook's first cell beside a torch that is there.

The environment is a fresh one in which everything but the course is found, as in Colab: another
Python prefix, an empty home, an empty folder called content, no checkout, no make.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

import pytest

from course_lib.versions import FOR_LEARNERS
from course_staff.authoring.copies import badges, install_cell

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OURS = ("course_lib", "__editable__")
# Runs in the fresh environment: execute the notebook, go on where the notebook says so.
RUN = """\
import sys, nbformat
from nbclient import NotebookClient
from traitlets.config import Config
notebook = nbformat.read(sys.argv[1], as_version=4)
kernel = dict(transport="ipc", ip=sys.argv[2])  # no port that another process could take
config = Config(KernelManager=kernel)
NotebookClient(notebook, timeout=150, config=config).execute()
nbformat.write(notebook, sys.argv[1])
"""


class Place:
    """A fresh environment in ``folder``, with the wheel beside the notebooks, if there is one, and
    with no registry to ask: pip finds nothing but what lies there."""

    def __init__(self, folder: Path, wheel: Path | None):
        there, env, self.content = (folder / name for name in ("dist-packages", "env", "content"))
        for path in (there, self.content):
            path.mkdir()
        if wheel:
            shutil.copy(wheel, self.content)
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if not path.name.startswith(OURS) and path.suffix != ".pth":
                (there / path.name).symlink_to(path)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
        [self.site] = env.glob("lib/python*/site-packages")
        (self.site / "dist-packages.pth").write_text(f"{there}\n")
        self.python = env / "bin" / "python"
        dropped = ("PYTHON", "PYTEST", "JUPYTER", "VIRTUAL_ENV", "PIP")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        self.variables = kept | {
            "HOME": str(folder),
            "PIP_NO_INDEX": "1",
            "JUPYTER_PREFER_ENV_PATH": "1",
            "COLAB_RELEASE_TAG": "as in Colab",
        }

    def run(self, *words: object) -> str:
        done = subprocess.run(
            [self.python, *words],
            cwd=self.content,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def execute(self, notebook: Path) -> list[dict]:
        """The code cells of a learner's notebook, copied here and executed, all of them."""
        copy = shutil.copy(notebook, self.content)
        with tempfile.TemporaryDirectory() as short:  # the path of a socket has a limit
            self.run("-c", RUN, copy, f"{short}/kernel")
        cells = json.loads(Path(copy).read_text())["cells"]
        return [cell for cell in cells if cell["cell_type"] == "code"]


def test_the_wheel_holds_what_lessons_need_and_no_answer_of_the_zoo(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    data = ("draw/stepper.js", "digits/MNIST/raw/train-images-idx3-ubyte")
    assert {f"course_lib/{name}" for name in data} | {"course_tools/jobs/train.yaml"} < names
    packages = (*(f"{name}/" for name in FOR_LEARNERS), "course_lib-")
    assert all(name.startswith(packages) for name in names)
    assert wheel.stat().st_size < 1_000_000


@pytest.mark.slow
def test_a_notebook_alone_installs_the_library_beside_the_torch_that_is_there(
    wheel: Path, tmp_path: Path
):
    place = Place(tmp_path, wheel)
    install, run = place.execute(first_cells(tmp_path / "one.ipynb"))
    assert install["outputs"] == []
    said = text_of(run)
    assert f"{place.site}/course_lib/__init__.py {tmp_path}/dist-packages/torch/__init__.py" in said
    assert "[0] hello\n[1] hello\nok      Python" in said
    assert "in Colab" in said and "Every lesson runs here" in said and said.endswith("\n0\n")


def first_cells(path: Path) -> Path:
    """A notebook of a cover, the cell that installs, and one that tries what is installed."""
    notebook = json.loads(LESSONS[1].read_text())
    lines = (
        "import torch, course_lib",
        "print(course_lib.__file__, torch.__file__)",
        "course_lib.run(lambda: print('hello'), world_size=2)",
        "from course_tools import doctor; print(doctor.main())",
    )
    trial = {"cell_type": "code", "id": "run", "execution_count": None, "metadata": {}}
    trial |= {"outputs": [], "source": "\n".join(lines)}
    install = notebook["cells"][1] | {"source": install_cell("01", ROOT).source}
    notebook["cells"] = [notebook["cells"][0], install, trial]
    path.write_text(json.dumps(notebook))
    return path


def text_of(cell: dict) -> str:
    return "".join(line for output in cell["outputs"] for line in output["text"])


# ---- what the first cell says and asks pip for ---------------------------------------------------

HERE, OLDER = "course_lib-0.1.0-py3-none-any.whl", "course_lib-0.0.9-py3-none-any.whl"
RENAMED = "course_lib-0.1.0-py3-none-any (1).whl"  # as a browser calls what it has fetched twice
GITHUB = "git+https://github.com/us/course@v0.1.0"
MISSING = f"{HERE} is not beside this notebook"
AGAIN = "put it there, and run this cell again\n"
FETCHES = "pip fetches torch, numpy, which the library needs: gigabytes\n"
OLD_TORCH = "ERROR: No matching distribution found for torch>=2.14"
NO_RIGHT = "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied"

# What lies beside the notebook, the repository, how pip ends each time that it is called;
# what the cell asks it for, and what the cell says.
CELLS = {
    "the wheel and another": ([HERE, OLDER], "", [""], [HERE], ""),
    "the wheel and a repository": ([HERE], "us/course", [""], [HERE], ""),
    "an older torch": ([HERE], "", [OLD_TORCH, ""], [HERE] * 2, f"{FETCHES}installed\n"),
    "no right": ([HERE], "", [NO_RIGHT, NO_RIGHT], [HERE] * 2, f"{FETCHES}{NO_RIGHT}\n"),
    "nothing": ([], "", [], [], f"{MISSING}: {AGAIN}"),
    "a renamed wheel": ([RENAMED], "", [], [], f"{MISSING}, but {RENAMED}: {AGAIN}"),
    "a repository": ([], "us/course", [""], [GITHUB], f"{MISSING}: taking {GITHUB}\n"),
}


def project(folder: Path, repository: str = "") -> Path:
    urls = f'urls = {{Repository = "https://github.com/{repository}"}}' if repository else ""
    text = f'[project]\nversion = "0.1.0"\ndependencies = ["torch>=2.14", "numpy"]\n{urls}\n'
    (folder / "pyproject.toml").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("beside", "repository", "ends", "asked", "says"), CELLS.values(), ids=CELLS.keys()
)
def test_the_first_cell_asks_pip_for_a_wheel_or_an_address_and_for_no_name(
    beside, repository, ends, asked, says, tmp_path: Path, monkeypatch, capsys
):
    calls: list[list[str]] = []
    left = iter(ends)

    def pip(command, **_):
        calls.append(command)
        error = next(left)
        return subprocess.CompletedProcess(command, bool(error), "", error)

    for name in beside:
        (tmp_path / name).touch()
    source = install_cell("00_a", project(tmp_path, repository)).source
    assert len(source.splitlines()) <= 17
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", pip)
    exec(compile(source, "cell", "exec"), {})
    assert capsys.readouterr().out == says
    for command in calls:
        assert command[:5] == [sys.executable, "-m", "pip", "install", "-qq"]
    assert [command[5] for command in calls] == asked
    # Only the second call may ask a registry, for what the library needs.
    assert [command[6:] for command in calls] == [["--no-index"], []][: len(calls)]


def test_the_first_cell_names_what_is_missing(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / HERE).touch()
    source = install_cell("00_a", project(tmp_path)).source
    ends = iter([1, 0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == "torch" else None)
    monkeypatch.setattr(
        subprocess, "run", lambda c, **_: subprocess.CompletedProcess(c, next(ends), "", "")
    )
    exec(compile(source, "cell", "exec"), {})
    assert capsys.readouterr().out == "pip fetches numpy, which the library needs\ninstalled\n"


def test_an_old_python_is_told_before_pip_is_asked(tmp_path: Path, monkeypatch, capsys):
    source = install_cell("00_a", project(tmp_path)).source
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", None)
    exec(compile(source, "cell", "exec"), {})
    said = "The course needs Python 3.11 or later: choose another kernel\n"
    assert capsys.readouterr().out == said


def test_where_the_library_is_the_first_cell_does_nothing(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", None)
    exec(compile(install_cell("00_a", ROOT).source, "cell", "exec"), {})
    assert capsys.readouterr().out == ""


def test_the_first_cell_looks_for_the_wheel_that_is_made(wheel: Path):
    assert f'"{wheel.name}"' in install_cell("00_a", ROOT).source


# A bare name after pip's install, wheel or download: whoever takes it at a registry runs code here.
BARE = re.compile(
    r"\bpip3?\b.*\b(?:install|wheel|download)\b.*(?<![\w./{-])course[_-]lib(?![\w./}-])"
)
PLACES = ("*", ".ci/*", ".devcontainer/*", ".github/**/*", "docs/**/*", "tools/*")
PLACES += ("course_*/**/*", "notebooks/**/*", "tests/**/*")


def test_nothing_of_ours_asks_a_registry_for_our_name():
    """In no cell, no command, no page, no message: nobody has published that name."""
    files = {file for place in PLACES for file in ROOT.glob(place) if file.is_file()}
    files -= {Path(__file__), *ROOT.rglob("*.pyc")}
    bare = [
        f"{file.relative_to(ROOT)}: {line.strip()[:120]}"
        for file in files
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
        if BARE.search(line)
    ]
    assert LESSONS[0] in files
    assert bare == []


def test_a_bare_name_is_seen():
    assert BARE.search("pip install 'course_lib[lab]'")
    assert BARE.search('[sys.executable, "-m", "pip", "install", "-q", "course_lib"], check=True)')
    assert BARE.search("python -m pip install --upgrade course-lib")


def test_the_dev_container_says_what_machine_it_needs():
    """Comments aside it is JSON; the units are those of the container specification."""
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    settings = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
    needs = settings["hostRequirements"]
    assert needs["cpus"] >= 2 and needs["gpu"] == "optional"
    assert all(re.fullmatch(r"\d+gb", needs[name]) for name in ("memory", "storage"))
    assert (ROOT / ".devcontainer" / settings["build"]["dockerfile"]).is_file()


def test_a_repository_on_github_is_where_notebooks_open_and_install_from(tmp_path: Path):
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nurls = {Repository = "https://github.com/us/course.git"}\n')
    links = re.findall(r"\((https:[^)]+)\)", badges("00_a", tmp_path))
    assert links == [
        "https://colab.research.google.com/github/us/course/blob/main/notebooks/00_a.ipynb",
        "https://codespaces.new/us/course",
    ]
    assert "git+https://github.com/us/course@v" in install_cell("00_a", tmp_path).source
