"""docs/errors.md says what the errors say: some of it is provoked again here, all of it in soak."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib import errors

ROOT = Path(__file__).resolve().parents[1]
TOOL = ROOT / "tools" / "errors_gallery.py"
PAGE = ROOT / "docs" / "errors.md"
WHATS = {"op", "shape", "dtype", "reduce op", "root", "peer", "tag", "group", "stride"}
KINDS = {"read before wait", "written before wait", "never waited for"}


@pytest.fixture(scope="module")
def gallery():
    spec = importlib.util.spec_from_file_location("errors_gallery", TOOL)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_some_examples_say_today_what_the_page_says():
    # In a process of its own: it makes itself a notebook, of which there is one a process.
    command = [sys.executable, str(TOOL), "--check", "--only", "5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as they stand in docs/errors.md" in done.stdout


def test_every_class_of_error_has_a_chapter(gallery):
    classes = {thing.__name__ for thing in vars(errors).values()
               if isinstance(thing, type) and issubclass(thing, errors.CourseError)}  # fmt: skip
    there = {chapter.name for chapter in gallery.CHAPTERS}
    # An exercise's check speaks in its own words; a Blocked is a Deadlock or a Hang.
    assert classes - there == {"CheckFailed", "Blocked"}
    assert there <= classes


@pytest.mark.parametrize(("chapter", "words"), [("Mismatch", WHATS), ("Hazard", KINDS)])
def test_every_kind_has_an_example(gallery, chapter, words):
    (found,) = (c for c in gallery.CHAPTERS if c.name == chapter)
    assert {example.title.partition(":")[0] for example in found.examples} == words
    known = " ".join(getattr(errors, chapter).__doc__.split())
    assert all(word in known for word in words)


def test_the_page_holds_every_example_once_and_in_order(gallery, text):
    titles = [example.title for _, example in gallery.examples()]
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == titles
    assert len(set(titles)) == len(titles)
    for chapter, example in gallery.examples():
        assert example.code.strip() in text
        assert f"```text\n{chapter.name}: " in text


def test_the_page_names_no_place_of_this_machine(text):
    assert not re.search(r"(?<![\w.])/[a-z]+/|site-packages|0x[0-9a-f]{6}|\d\d:\d\d:\d\d", text)
    assert "cell [1], line " in text


def test_a_text_that_has_changed_is_seen(gallery, text):
    _, example = next(gallery.examples())
    start = text.index(f"### {example.title}\n")
    old = text[start : text.index("\n### ", start + 1)]
    as_it_stands = {example.title: old}
    assert gallery.difference(as_it_stands, text) == []
    changed = {example.title: old.replace("rank 2 raised", "rank 3 raised")}
    assert any("rank 3 raised" in line for line in gallery.difference(changed, text))
    assert gallery.difference(as_it_stands, "")
