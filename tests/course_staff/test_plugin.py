"""The plugin on notebooks that misbehave: nothing passes by being skipped, dead or late."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as xml

import nbformat
import pytest
from processes import gone, wait_for

from course_staff.authoring.execute import clean_environment
from course_staff.grading import grade

PLUGIN = Path(grade.__file__).with_name("plugin.py")


Cells = list[tuple[str, str, dict]]


def command_for(cells: Cells, folder: Path, *options: str) -> list[str]:
    made = [nbformat.v4.new_code_cell(text, id=id, metadata=given) for id, text, given in cells]
    path = folder / "n.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    where = (f"--rootdir={folder}", f"--junitxml={folder / 'o.xml'}")
    return [sys.executable, "-P", str(PLUGIN), *where, *options, str(path)]


@pytest.mark.slow
def test_no_marker_death_or_delay_is_a_pass_or_costs_another_cell(tmp_path: Path) -> None:
    """A kernel that is dead, or does not come back, costs one timeout of a cell."""
    check = {"role": "check"}
    cells: Cells = [
        ("begin", "x = 1", {"role": "begin"}),
        ("fine", "assert x == 1", check | {"exercise": "e"}),
        ("raises", "assert False", check),
        ("skip", "# NBVAL_SKIP\nassert x == 1", check),
        ("dies", "import os; os._exit(0)", check),
        ("after", "assert x == 1", check),
        ("hangs", "while True: pass", check),
        ("last", "assert x == 1", check),
    ]
    command = command_for(cells, tmp_path, "--nbval-cell-timeout=3")
    environment = clean_environment(tmp_path, tmp_path)
    nobody = {"stdin": subprocess.DEVNULL, "capture_output": True}
    done = subprocess.run(command, cwd=tmp_path, env=environment, **nobody)
    assert done.returncode == 1, done.stdout
    suite = xml.parse(tmp_path / "o.xml").getroot()[0]
    assert suite.get("skipped") == "0"
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    passed = [name for name, case in cases.items() if case.find("failure") is None]
    assert passed == ["begin", "fine", "after", "last"]
    told = {p.get("name"): p.get("value") for p in cases["fine"].iter("property")}
    assert told == {"cell": "fine", "exercise": "e", "role": "check"}


@pytest.mark.slow
def test_it_ends_with_whoever_started_it_and_so_does_its_kernel(tmp_path: Path) -> None:
    source = "import os; open('pid', 'w').write(str(os.getpid())); os.rename('pid', 'kernel')"
    cells = [("a", f"{source}\nimport time; time.sleep(600)", {})]
    start = f"import subprocess; subprocess.run({command_for(cells, tmp_path)!r})"
    starter = subprocess.Popen(
        [sys.executable, "-c", start], cwd=tmp_path, env=clean_environment(tmp_path, tmp_path)
    )
    assert wait_for((tmp_path / "kernel").exists) and starter.poll() is None
    kernel = int((tmp_path / "kernel").read_text())
    plugin = int(Path(f"/proc/{kernel}/stat").read_text().rsplit(")", 1)[1].split()[1])
    starter.kill()
    starter.wait()
    assert gone([kernel, plugin], 60) == []
