"""The plugin on notebooks that misbehave: nothing passes by being skipped, dead or late."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as xml

import nbformat
import pytest

from course_lib.grading import grade
from course_lib.notebooks.execute import clean_environment

PLUGIN = Path(grade.__file__).with_name("plugin.py")


def outcomes(cells: list[tuple[str, str, dict]], folder: Path, *options: str) -> dict[str, str]:
    """The cells' outcomes by id: "" is passed."""
    notebook = nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_code_cell(source, id=id, metadata=metadata)
        for id, source, metadata in cells])  # fmt: skip
    nbformat.write(notebook, folder / "n.ipynb")
    command = [
        sys.executable, "-P", str(PLUGIN), "-q", "-p", "no:cacheprovider", "--noconftest", "-c",
        "/dev/null", f"--rootdir={folder}", "--nbval", "--nbval-current-env",
        f"--junitxml={folder / 'o.xml'}", *options, str(folder / "n.ipynb"),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=clean_environment(folder, folder), text=True,
                          capture_output=True, timeout=120)  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    suite = xml.parse(folder / "o.xml").getroot()[0]
    assert suite.get("skipped") == "0"
    out = {}
    for case in suite.iter("testcase"):
        failure = case.find("failure")
        out[case.get("name", "")] = "" if failure is None else failure.get("message", "?")
    return out


@pytest.mark.slow
def test_no_marker_tag_death_or_delay_is_a_pass(tmp_path: Path) -> None:
    begin = {"role": "begin"}
    got = outcomes([
        ("begin", "x = 1", begin),
        ("fine", "assert x == 1", {}),
        ("skip", "# NBVAL_SKIP\nassert False", {}),
        ("tag", "assert False", {"tags": ["nbval-skip", "raises-exception"]}),
        ("silent", "get_ipython().showtraceback = lambda *a, **k: None\nassert False", {}),
        ("dies", "import os; os._exit(0)", {}),
        ("after", "assert x == 1", {}),
        ("hangs", "while True: pass", {}),
        ("last", "assert x == 1", {}),
    ], tmp_path, "--cell-seconds=3")  # fmt: skip
    assert [name for name, why in got.items() if not why] == ["begin", "fine", "after", "last"]
    assert "the kernel died" in got["dies"]
    assert "nothing came back within 3 s" in got["hangs"]


@pytest.mark.slow
def test_the_deadline_of_a_notebook_is_kept(tmp_path: Path) -> None:
    got = outcomes([("a", "while True: pass", {}), ("b", "1", {})], tmp_path, "--grade-seconds=8")
    assert "nothing came back" in got["a"]
    assert "the time for this submission is over" in got["b"]
