"""``python -m course_lib check``: an answer in a module or in a notebook."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import zoo

from course_check.check_command import read_answer
from course_lib.__main__ import main
from course_lib.errors import CheckFailed

ROOT = Path(__file__).resolve().parents[2]
SOLVED = ROOT / "notebooks/solutions/00_hello_ranks.ipynb"
HELPER = "from math import ceil, floor\n\ndef least(n):\n    return floor(n)  # at least"
ANSWER = "@keep\ndef my_share(n_items):\n    return range(least(n_items))"
KEEP = "def keep(fn):\n    return fn"
STUB = 'def my_share(n_items):\n    raise NotImplementedError("not written yet")\n'


def notebook(path: Path, *sources: str, answers: str = "") -> str:
    """A notebook of these cells. ``answers``: the exercise that its last cell is marked with."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    if answers:
        cells[-1].metadata = {"exercise": answers, "role": "answer"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path / "answer.ipynb")
    return str(path / "answer.ipynb")


def test_a_solved_notebook_passes_and_the_learners_is_not_written_yet(capsys):
    assert main(["check", "my_share", str(SOLVED), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["points"] == 100
    assert main(["check", "my_share", str(ROOT / "notebooks" / SOLVED.name)]) == 1
    assert capsys.readouterr().out == "00.1 my_share: not written yet\n"


def test_an_answer_brings_what_it_needs_and_nothing_else_is_run(tmp_path: Path):
    file = notebook(tmp_path, "%matplotlib inline", HELPER, KEEP, "raise SystemExit", ANSWER)
    answer = read_answer("my_share", file)
    assert answer.source == "\n".join(
        ["from math import floor", HELPER.split("\n\n")[1], KEEP, ANSWER]
    )
    assert answer.load()(3) == range(3)


def test_the_cell_of_the_exercise_counts_before_one_that_defines_its_name(tmp_path: Path):
    mine = "def my_share(n_items):\n    return 1"
    file = notebook(tmp_path, mine, mine.replace("1", "2"), answers="my_share")
    assert read_answer("my_share", file).load()(3) == 2


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (["x = 1"], "has no cell that defines my_share"),
        (["def my_share(n_items)\n    return 1"], "answer.ipynb, line 1 is not Python"),
    ],
)
def test_a_notebook_without_an_answer_is_told_in_a_line(tmp_path: Path, cells, sentence: str):
    marked = "my_share" if "my_share" in cells[0] else ""
    with pytest.raises(CheckFailed, match=sentence):
        read_answer("my_share", notebook(tmp_path, *cells, answers=marked))


def test_for_tools_a_name_that_no_exercise_has_is_an_object_too(capsys):
    assert main(["check", "no_such", "answer.py", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["passed"], told["exercise"]) == (None, "no_such")
    assert "No exercise is called no_such" in told["hint"]


@pytest.mark.slow
def test_an_answer_is_checked_again_on_each_save_until_ctrl_c(tmp_path: Path):
    file = tmp_path / "answer.py"
    words = [sys.executable, "-m", "course_lib", "check", "my_share", str(file), "--again"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipes["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # as in a terminal
    with subprocess.Popen(words, cwd=ROOT, **pipes) as process:
        assert process.stdout is not None and process.stderr is not None

        def told_after(source: str) -> str:
            """What is said of an answer that an editor saves, by replacing the file."""
            if source:
                new = tmp_path / "new"
                new.write_text(source)
                os.replace(new, file)
            lines = iter(process.stdout.readline, "")
            said = "".join(
                iter(
                    lambda: next(lines),
                    "-- waiting for answer.py to be saved; Ctrl-C ends this --\n",
                )
            )
            assert process.stdout.readline() == "\n"
            return said

        assert "No such file" in told_after("")
        assert "is not Python" in told_after("def my_share(n_items)\n")
        assert "not written yet" in told_after(STUB)
        assert "passed" in told_after(zoo.source("my_share", "by_divmod"))
        process.send_signal(signal.SIGINT)
        assert (process.wait(30), process.stderr.read()) == (130, "")
