"""docs/gradients.md says what compare_gradients says today, of every kind."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from course_tools.gradient_comparison.kinds import KINDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "gradients.md"
EXAMPLE = re.compile(r"^### (\S+)\n.*?```text\n(.*?)```", re.M | re.S)


def test_every_kind_has_an_example_that_is_of_this_kind():
    told = dict(EXAMPLE.findall(PAGE.read_text(encoding="utf-8")))
    assert told.keys() == {*KINDS, "shape"}
    assert (
        told.pop("equal")
        == "All equal (1 of 1), each within 0.01% (float32) of its largest entry.\n"
    )
    assert all(text.splitlines()[1].startswith(f"  w   {kind} ") for kind, text in told.items())


@pytest.mark.slow
def test_the_page_says_what_is_said_today(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8").replace("3 is n", "4 is n"), encoding="utf-8")
    command = [sys.executable, "tools/errors_gallery.py", "--check", page]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)
    changed = [line for line in done.stdout.splitlines() if re.match(r"[-+] ", line)]
    assert done.returncode == 1, done.stderr
    assert [line.count("4 is n") for line in changed] == [1, 0], done.stdout
