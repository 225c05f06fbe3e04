"""README says what is so: its example, its links, its table."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import zoo
from nbclient import NotebookClient

from course_lib.__main__ import main

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)
    return found


@pytest.mark.slow
def test_the_example_ends_as_shown():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(block("python"))])
    folder = {"metadata": {"path": str(ROOT)}}
    NotebookClient(notebook, timeout=120, allow_errors=True, resources=folder).execute()
    (error,) = (o for o in notebook.cells[0].outputs if o.output_type == "error")
    assert "\n".join(error.traceback) == block("text").strip()


def test_every_link_leads_somewhere():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_table_has_every_lesson_and_no_other():
    listed = re.findall(r"\]\(notebooks/(\d\d_\w+)\.ipynb\)", TEXT)
    assert listed == sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))


def test_every_command_is_there():
    named = set(re.findall(r"python -m course_lib (\w+)", TEXT))
    help_text = subprocess.run(
        [sys.executable, "-m", "course_lib", "--help"], capture_output=True, text=True, cwd=ROOT
    ).stdout
    assert named
    assert [name for name in named if name not in help_text] == []


@pytest.mark.slow
def test_the_exercise_check_on_the_command_line_works_as_said(tmp_path, capsys):
    (command,) = re.findall(r"`python -m course_lib (check \w+ answer\.py --json)`", TEXT)
    _, exercise, *_ = words = command.split()
    answer = tmp_path / "answer.py"
    answer.write_text(next(iter(zoo.right(exercise).values())))
    words[words.index("answer.py")] = str(answer)
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
