"""The library's README: its paths lead somewhere, and its plain launcher runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "course_lib"
TEXT = (PACKAGE / "README.md").read_text()


def test_every_path_leads_somewhere_and_every_file_of_ranks_is_on_the_way():
    links = set(re.findall(r"\]\(([^)]+)\)", TEXT))
    assert [link for link in links if not (PACKAGE / link).is_file()] == []
    files = {f"ranks/{path.name}" for path in (PACKAGE / "ranks").glob("*.py")}
    assert files - links == {"ranks/__init__.py"}


def test_the_plain_launcher_runs(tmp_path: Path):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    assert len(code.splitlines()) < 70
    script = tmp_path / "plain.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]\n", done.stderr
