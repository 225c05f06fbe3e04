"""What is taken out of a submitted notebook, whatever has become of it; nothing of it is run."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import nbformat
import pytest
import zoo
from conftest import TESTS, answer_cell, code, notebook, written

from course_check.namespace import CellText, namespace
from course_staff import manifest
from course_staff.authoring.lesson import STUB
from course_staff.grading import answers, exports, feedback, marks
from course_staff.grading.grading_notebook import write
from course_staff.grading.policy import Policy

ROOT = TESTS.parent
RELEASE = manifest.read(ROOT / "notebooks" / "manifest.json")
RIGHT = zoo.source("my_share", "by_divmod")
STUB_TEXT = f"def my_share(n_items):\n    {STUB}\n"


def found(cells: list[dict[str, Any]], tmp_path: Path, **more: Any) -> answers.Found:
    path = written(tmp_path / "submission.ipynb", notebook(cells, **more))
    return answers.read(path, RELEASE).answers["my_share"]


MOVED = {
    "answered beside the stub": [answer_cell(STUB_TEXT), code(RIGHT, "zz")],
    "the stub copied below": [answer_cell(RIGHT), answer_cell(STUB_TEXT)],
    "an earlier try above": [answer_cell("x = 1\nmy_share = 2\n"), answer_cell(RIGHT)],
    "ends of lines": [code(RIGHT.replace("\n", "\r\n"), "my_share-answer")],
    "no id and no metadata": [code("import torch"), code(RIGHT)],
    "lines, and no field too many": [
        {"cell_type": "code", "source": RIGHT.splitlines(True), "id": "my_share-answer"}
    ],
    "rubbish around it": [None, 3, [], {}, {"cell_type": None, "source": 7}, answer_cell(RIGHT)],
}


@pytest.mark.parametrize("cells", MOVED.values(), ids=MOVED)
def test_an_answer_is_found_in_cells_that_were_moved_about(cells, tmp_path: Path) -> None:
    got = found(cells, tmp_path)
    assert (got.problem, got.source.rstrip()) == ("", RIGHT.rstrip())


def test_of_two_that_differ_the_last_counts_and_the_note_says_so(tmp_path: Path) -> None:
    got = found([answer_cell("def my_share(n):\n    return 1\n"), answer_cell(RIGHT)], tmp_path)
    assert got.source == RIGHT
    assert "the last one counts" in got.note


NO_CODE = {"cell_type": "markdown", "source": RIGHT, "metadata": {}, "id": "my_share-answer"}
CHECK_ONLY = code("x = 1", "my_share-check", exercise="my_share", role="check")


@pytest.mark.parametrize(
    ("cell", "problem"), [(CHECK_ONLY, "is missing"), (NO_CODE, "is no code cell any more")]
)
def test_a_cell_that_is_gone_has_a_reason(cell, problem: str, tmp_path: Path) -> None:
    assert found([cell], tmp_path).problem == f"its cell {problem}"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (STUB_TEXT, "not written yet"),
        ("", "its cell is empty"),
        ("def my_share(n, n):\n  pass\n", "it is not Python, line 1: duplicate"),
        ("!rm -rf build\n" + RIGHT, "line 1 is a command to the notebook"),
        ("import IPython\nx = IPython.get_ipython()\n" + RIGHT, "get_ipython"),
        (RIGHT + "\n#nbval_raises_exception", "a marker of nbval"),
        ("def mine():\n    my_share = 1\n    return my_share", "it defines no my_share"),
        ("my_share = " + "(" * 5000 + ")" * 5000, "it is not Python"),
        (RIGHT + "\nx = 1" * 60_000, "longer than"),
        (RIGHT + "\x00", "it is not Python"),
    ],
)
def test_what_cannot_be_judged_has_a_reason(source: str, problem: str, tmp_path: Path) -> None:
    assert problem in found([answer_cell(source)], tmp_path).problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a notebook"),
        ("[" * 100_000, "not a notebook"),
        ("[]", "no JSON object"),
        ('{"cells": 3}', "it has no cells"),
        ('{"cells": [{"cell_type": 1, "source": [1], "metadata": [], "id": {}}]}', "no exercise"),
    ],
)
def test_a_file_that_is_no_notebook_is_one_line(text: str, problem: str, tmp_path: Path) -> None:
    got = answers.read(written(tmp_path / "x.ipynb", text), RELEASE)
    assert problem in got.problem
    assert got.answers == {}


def test_the_lesson_is_known_by_its_answers_its_metadata_or_its_name(tmp_path: Path) -> None:
    other = written(tmp_path / "x.ipynb", notebook([answer_cell(RIGHT)], lesson="77_old_name"))
    assert answers.read(other, RELEASE).lesson == "00_hello_ranks"
    empty = written(tmp_path / "y.ipynb", notebook([]))
    assert answers.read(empty, RELEASE).lesson == "00_hello_ranks"
    named = written(tmp_path / "00_hello_ranks-anna.ipynb", notebook([], lesson=""))
    assert answers.read(named, RELEASE).lesson == "00_hello_ranks"


def test_the_grading_notebook_holds_answers_as_strings_and_nothing_else_of_a_submission(
    tmp_path: Path,
) -> None:
    evil = answer_cell(RIGHT + "\n'''\n# a line\n'''\n")
    evil["metadata"]["tags"] = ["nbval-skip", "raises-exception"]
    edited = {"exercise": "my_share", "role": "check", "tags": ["nbval-skip"]}
    check = code("print('passed')  # edited", "my_share-check", **edited)
    check["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "100 of 100"}]
    path = written(tmp_path / "x.ipynb", notebook([evil, check, code("import os; os._exit(0)")]))
    solved = ROOT / "notebooks" / "solutions" / "00_hello_ranks.ipynb"
    items, handed = RELEASE.lessons["00_hello_ranks"], answers.read(path, RELEASE)
    made = write(tmp_path, handed, items, solved, ["my_share"], {})
    cells = nbformat.read(made, as_version=4).cells
    assert [c.id for c in cells] == ["grading-begin", "my_share-answer", "my_share-check"]
    assert cells[2].source == "grade(my_share)"
    assert len(cells[1].source.splitlines()) == 1, "a string, on one line"
    assert all("tags" not in c.metadata and not c.outputs for c in cells)


HARD = [
    "x = 1" + " + 1" * 3000 + "\n" + RIGHT,
    "x = " + "-" * 50_000 + "1\n" + RIGHT,
    "\n" * 200_000 + RIGHT,
    "a = b = " * 9000 + "1\n" + RIGHT,
    "".join(f"x{n} = x{n + 1}\n" for n in range(3_000)) + RIGHT.replace("n_items", "x0", 1),
]


@pytest.mark.slow
@pytest.mark.parametrize("source", HARD, ids=range(len(HARD)))
def test_a_source_that_is_hard_to_read_is_answered_soon(source: str, tmp_path: Path) -> None:
    start = time.process_time()
    got = found([answer_cell(source)], tmp_path)
    if not got.problem:
        namespace("my_share", CellText("my_share.py", got.source, "my_share"), [])
    assert time.process_time() - start < 5


def test_an_answer_as_deep_as_allowed_can_be_taken_apart() -> None:
    chain = "".join(f"{'elif' if n else 'if'} x == {n}:\n    y = {n}\n" for n in range(70))
    nest = "x = " + "(-" * 60 + "1" + ")" * 60
    source = f"{nest}\n{chain}def my_share(n):\n    return y\n"
    assert answers.refused(source, "my_share") == ""
    got = namespace("my_share", CellText("my_share.py", source, "my_share"), [])
    assert got.missing == ()


def test_what_is_no_ordinary_file_is_not_opened(tmp_path: Path) -> None:
    real = written(tmp_path / "elsewhere" / "solved.ipynb", notebook([answer_cell(RIGHT)]))
    (tmp_path / "link.ipynb").symlink_to(real)
    os.mkfifo(tmp_path / "fifo.ipynb")
    (tmp_path / "folder.ipynb").mkdir()
    for name in ("link", "fifo", "folder"):
        got = answers.read(tmp_path / f"{name}.ipynb", RELEASE)
        assert got.problem == "a link or no ordinary file"
    assert "cannot be read" in answers.read(tmp_path / "none.ipynb", RELEASE).problem


def test_of_a_damaged_file_the_cells_that_are_whole_are_read(tmp_path: Path) -> None:
    text = json.dumps(notebook([code("import torch"), answer_cell(RIGHT), code("rest " * 50)]))
    for broken in (text[:-80], text.replace("rest", "\n<<<<<<< HEAD\n", 1)):
        path = written(tmp_path / "00_hello_ranks.ipynb", broken)
        got = answers.read(path, RELEASE)
        assert got.answers["my_share"].source == RIGHT
        assert "damaged" in got.note
    path.write_bytes(text.encode().replace(b"rest", b"h\xffre"))
    assert answers.read(path, RELEASE).answers["my_share"].source == RIGHT


def test_what_needs_modelled_gpus_is_neither_judged_nor_counted(tmp_path: Path) -> None:
    names = ["exchange_edges", "first_missing"]
    levels = {"core": 90, "sturdy": 10}
    items = [manifest.Item(n, "07", 10, True, levels, f"{n}-answer", "", "") for n in names]
    release = manifest.Manifest("1", {"07_gpus": items})
    cells = [answer_cell(f"def {name}(x):\n    return x\n", name) for name in names]
    handed = answers.read(written(tmp_path / "07.ipynb", notebook(cells)), release)
    assert [handed.answers[n].problem for n in names] == [answers.NOT_GRADED, ""]
    marked = marks.mark("x", handed, release, Policy(), tmp_path)
    assert (marked.worth, marked.marks[0].reason) == (10, answers.NOT_GRADED)
    suite = xml.fromstring(exports.junit([marked]))[0]
    assert [case.find("skipped") is not None for case in suite] == [True, False]
    assert (suite.get("skipped"), suite.get("failures")) == ("1", "1")
    assert suite[0][-1].get("message") == answers.NOT_GRADED
    assert re.search(f"exchange_edges +{answers.NOT_GRADED}", exports.summary([marked]))
    [test] = json.loads(feedback.gradescope(marked))["tests"]
    assert test["name"] == "07 first_missing"
