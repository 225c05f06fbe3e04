"""docs/errors.md is whole, and its tool sees what has changed. What it says is that of today's
errors: tests/programs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs.page import CHAPTERS, EXAMPLES, TEXT

from course_lib import errors

ROOT = Path(__file__).resolve().parents[2]
TITLES = {name: re.findall(r"^### (.+)$", text, re.M) for name, text in CHAPTERS.items()}
KINDS = {
    "Mismatch": "op shape dtype reduce-op root peer tag group stride module",
    "Hazard": "read-before-wait written-before-wait never-waited-for",
}


def example(code: str, text: str) -> str:
    return f"```python\n{code}```\n\n```text\n{text}\n```\n\n"


@pytest.mark.slow
def test_a_notebook_says_what_the_page_says_and_what_has_changed_is_seen(tmp_path: Path):
    """Of every second example: a result that has changed, and an error."""
    # In a process of its own: it makes itself a notebook, of which there is one a process.
    page = example("1 + 1\n", "3") + example("not tried", "") + "## RankFailed\n"
    page += example(*EXAMPLES["One rank raises"])
    (tmp_path / "page.md").write_text(page)
    command = [sys.executable, "tools/errors_gallery.py", "--check", "--only=2"]
    done = subprocess.run(
        [*command, tmp_path / "page.md"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    changed = [line for line in done.stdout.splitlines() if re.match(r"[-+]\w", line)]
    assert changed == ["-3", "+2"], done.stdout


def test_every_class_of_error_has_a_chapter_and_every_kind_an_example():
    things = [thing for thing in vars(errors).values() if isinstance(thing, type)]
    classes = {thing.__name__ for thing in things if issubclass(thing, errors.CourseError)}
    # An exercise's check speaks in its own words; a Blocked is a Deadlock or a Hang.
    assert set(CHAPTERS) == classes - {"CheckFailed", "Blocked"}
    for chapter, kinds in KINDS.items():
        told = {title.partition(":")[0].replace(" ", "-") for title in TITLES[chapter]}
        assert told == set(kinds.split())


def test_the_contents_name_every_example():
    rows = [f"- [{name}](#{name.lower()}): {', '.join(titles)}" for name, titles in TITLES.items()]
    assert "\n".join(rows) in TEXT


def test_the_page_names_no_place_of_this_machine():
    assert not re.search(r"(?<![\w.])/[a-z]+/|site-packages|0x[0-9a-f]{6}|\d\d:\d\d:\d\d", TEXT)
