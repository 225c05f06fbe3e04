"""A notebook alone: the wheel, installed by the notebook's first cell beside a torch that is there.

The environment is a fresh one in which everything but the course is found, as in Colab: another
Python prefix, an empty home, an empty folder called content, no checkout, no make.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from course_lib.notebooks.copies import badges, install_cell

ROOT = Path(__file__).resolve().parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OURS = ("course_lib", "__editable__")
# Runs in the fresh environment: execute the notebook, go on where the notebook says so.
RUN = """\
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=150).execute()
nbformat.write(notebook, sys.argv[1])
"""


class Place:
    """A fresh environment in ``folder``, in which ``pip install course_lib`` finds the wheel."""

    def __init__(self, folder: Path, wheel: Path):
        there, env, self.content = (folder / name for name in ("dist-packages", "env", "content"))
        for path in (there, self.content):
            path.mkdir()
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if not path.name.startswith(OURS) and path.suffix != ".pth":
                (there / path.name).symlink_to(path)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
        [self.site] = env.glob("lib/python*/site-packages")
        (self.site / "dist-packages.pth").write_text(f"{there}\n")
        self.python = env / "bin" / "python"
        dropped = ("PYTHON", "PYTEST", "JUPYTER", "VIRTUAL_ENV")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        self.variables = kept | {
            "HOME": str(folder), "PIP_FIND_LINKS": str(wheel.parent), "PIP_NO_INDEX": "1",
            "JUPYTER_PREFER_ENV_PATH": "1", "COLAB_RELEASE_TAG": "as in Colab",
        }  # fmt: skip

    def run(self, *words: object) -> str:
        done = subprocess.run([self.python, *words], cwd=self.content, env=self.variables,
                              capture_output=True, text=True, timeout=600)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def execute(self, notebook: Path) -> list[dict]:
        """The code cells of a learner's notebook, copied here and executed, all of them."""
        copy = shutil.copy(notebook, self.content)
        self.run("-c", RUN, copy)
        cells = json.loads(Path(copy).read_text())["cells"]
        return [cell for cell in cells if cell["cell_type"] == "code"]


def test_the_wheel_holds_what_lessons_need_and_no_answer_of_the_zoo(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = ("jobs/train.py", "jobs/train.yaml", "draw/stepper.js", "doctor.py", "checks/cli.py",
              "digits/MNIST/raw/train-images-idx3-ubyte", "grading/templates/Makefile")  # fmt: skip
    assert {f"course_lib/{name}" for name in needed} <= names
    assert all(name.startswith(("course_lib/", "course_lib-")) for name in names)
    assert wheel.stat().st_size < 1_000_000


@pytest.mark.slow
def test_a_notebook_alone_installs_the_library_beside_the_torch_that_is_there(
    wheel: Path, tmp_path: Path
):
    place = Place(tmp_path, wheel)
    cells = json.loads(LESSONS[1].read_text())
    cells["cells"] = [*cells["cells"][:2], {
        "cell_type": "code", "id": "run", "execution_count": None, "metadata": {}, "outputs": [],
        "source": "import torch, course_lib\nprint(course_lib.__file__, torch.__file__)\n"
                  "course_lib.run(lambda: print('hello'), world_size=2)\n"
                  "from course_lib import doctor; print(doctor.main())",
    }]  # fmt: skip
    (tmp_path / "one.ipynb").write_text(json.dumps(cells))
    install, run = place.execute(tmp_path / "one.ipynb")
    assert install["outputs"] == []
    said = "".join(line for output in run["outputs"] for line in output["text"])
    assert f"{place.site}/course_lib/__init__.py {tmp_path}/dist-packages/torch/__init__.py" in said
    assert "[0] hello\n[1] hello\nok      Python" in said
    assert "in Colab" in said and "Every lesson runs here" in said and said.endswith("\n0\n")


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
    assert badges("00_a", tmp_path) == ""
    project.write_text('[project]\nurls = {Repository = "https://example.org/us/course"}\n')
    assert badges("00_a", tmp_path) == ""
    assert '"course_lib"], check' in install_cell("00_a", tmp_path).source
    project.write_text('[project]\nurls = {Repository = "https://github.com/us/course.git"}\n')
    links = re.findall(r"\((https:[^)]+)\)", badges("00_a", tmp_path))
    assert links == [
        "https://colab.research.google.com/github/us/course/blob/main/notebooks/00_a.ipynb",
        "https://codespaces.new/us/course",
    ]
    source = install_cell("00_a", tmp_path).source
    assert "course_lib @ git+https://github.com/us/course" in source
    compile(source, "cell", "exec")
