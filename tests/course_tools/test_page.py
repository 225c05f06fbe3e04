"""docs/gradients.md says what compare_gradients says today, of every kind."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from programs.page import CELL, NAMES

from course_lib.user_code import show_lines
from course_tools.gradient_comparison.kinds import KINDS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "gradients.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^### (\S+)\n.*?```text\n(.*?)```", re.M | re.S)


def test_every_kind_has_an_example_that_is_of_this_kind():
    told = dict(EXAMPLE.findall(TEXT))
    assert told.keys() == {*KINDS, "shape"}
    assert (
        told.pop("equal")
        == "All equal (1 of 1), each within 0.01% (float32) of its largest entry.\n"
    )
    assert all(text.splitlines()[1].startswith(f"  w   {kind} ") for kind, text in told.items())


@pytest.mark.slow
def test_the_page_says_what_is_said_today():
    """tools/errors_gallery.py writes it, in a notebook, of which the last line shows."""
    examples = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)\n```", TEXT, re.M | re.S)
    assert len(examples) == 12
    for code, text in examples:
        *body, last = ast.parse(code).body
        space = dict(NAMES)
        show_lines(CELL, code)
        exec(compile(ast.Module(body, []), CELL, "exec"), space)
        assert repr(eval(compile(ast.Expression(last.value), CELL, "eval"), space)) == text
