"""The plugin on notebooks that misbehave: nothing passes by being skipped, dead or late."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as xml

import nbformat
import pytest

from course_lib.grading import grade
from course_lib.notebooks.execute import clean_environment

PLUGIN = Path(grade.__file__).with_name("plugin.py")


def command_for(cells: list[tuple[str, str, dict]], folder: Path, *options: str) -> list[str]:
    notebook = nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_code_cell(source, id=id, metadata=metadata)
        for id, source, metadata in cells])  # fmt: skip
    nbformat.write(notebook, folder / "n.ipynb")
    return [
        sys.executable, "-P", str(PLUGIN), "-q", "-p", "no:cacheprovider", "--noconftest", "-c",
        "/dev/null", f"--rootdir={folder}", "--nbval", "--nbval-current-env",
        f"--junitxml={folder / 'o.xml'}", *options, str(folder / "n.ipynb"),
    ]  # fmt: skip


def outcomes(cells: list[tuple[str, str, dict]], folder: Path, *options: str) -> dict[str, str]:
    """The cells' outcomes by id: "" is passed."""
    command = command_for(cells, folder, *options)
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


@pytest.mark.slow
def test_it_ends_with_whoever_started_it_and_so_does_its_kernel(tmp_path: Path) -> None:
    source = "import os; open('pid', 'w').write(str(os.getpid())); os.rename('pid', 'kernel')"
    cells = [("a", f"{source}\nimport time; time.sleep(600)", {})]
    command = command_for(cells, tmp_path, "--end-with-stdin")
    with subprocess.Popen(command, cwd=tmp_path, env=clean_environment(tmp_path, tmp_path),
                          stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:  # fmt: skip
        end = time.monotonic() + 60
        while not (tmp_path / "kernel").exists() and time.monotonic() < end:
            assert process.poll() is None, "it has not ended before"
            time.sleep(0.05)
        kernel = int((tmp_path / "kernel").read_text())
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 3
    while is_alive(kernel) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_alive(kernel)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
