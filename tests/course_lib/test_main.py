"""The command line: every command is there, and a mistake is one line and exit code 2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import course_check.check_command
import course_check.copies.progress
import course_check.copies.update
import course_staff.authoring.release
import course_staff.grading.grade
import course_staff.manifest
import course_tools.doctor
from course_lib import __main__ as command_line

ROOT = Path(__file__).resolve().parents[2]
TOOLS = re.findall(r"\$\(PY\) (tools/\w+\.py)", (ROOT / "Makefile").read_text(encoding="utf-8"))
COMMANDS = {  # the module that has it, and what may stand behind it
    "doctor": (course_tools.doctor, ""),
    "check": (course_check.check_command, "my_share answer.py"),
    "update": (course_check.copies.update, ""),
    "progress": (course_check.copies.progress, ""),
    "build": (course_staff.manifest, "00"),
    "grade": (course_staff.grading.grade, "inbox --out marks"),
    "release": (course_staff.authoring.release, "--lessons 00 --manifest m.json --out out"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_calls_its_module_and_passes_on_its_exit_code(command: str, monkeypatch):
    module, more = COMMANDS[command]
    words = [command, *more.split()]
    args = command_line.parser().parse_args(words)
    seen = []
    monkeypatch.setattr(module, "main", lambda a, *_: seen.append(a) or 7)
    assert command_line.main(words) == 7
    assert seen == [args]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["bild"], "invalid choice: 'bild'"),
        (["build", "42"], "no lesson '42' in notebooks/src: 00_hello_ranks"),
        (["check", "my_shar", "a.py"], "No exercise is called my_shar: did you mean my_share?"),
        (["check", "no_such", "a.py"], "python -m course_lib progress lists them all"),
        (["grade", str(ROOT / "README.md"), "--out", "marks"], "README.md is no notebook"),
        (["watch", "--read", "no/such/folder"], "there is no folder no/such/folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(argv: list[str], sentence: str, capsys):
    try:
        code = command_line.main(argv)
    except SystemExit as ended:
        code = ended.code
    error = capsys.readouterr().err
    assert code == 2
    assert sentence in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "words", ["course_lib check my_share answer.py", "course_lib.watch --read ."]
)
def test_another_python_than_the_environments_is_told_in_a_sentence(words: str, tmp_path: Path):
    """As where a page's command is typed in a shell in which nothing is activated."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch()
    command = [sys.executable, "-S", "-m", *words.split()]  # without what is installed
    plain = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=plain, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert "this folder has .venv: use .venv/bin/python" in said
    assert "Traceback" not in said
    assert done.returncode != 0


def test_a_reader_that_has_read_enough_breaks_nothing():
    command = f"{sys.executable} -m course_lib progress | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_help_needs_no_torch():
    probe = (
        "import sys\nfrom course_lib.__main__ import parser\n"
        "assert 'doctor' in parser().format_help()\nprint({'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60)
    assert done.stdout == "set()\n", done.stderr


def test_a_tool_of_the_makefile_finds_the_packages_by_itself():
    """Only ``course_lib`` and ``course_exercises`` are installed; ``course_staff`` lies beside."""
    for tool in TOOLS:
        before, imports, _ = (ROOT / tool).read_text(encoding="utf-8").partition("\nfrom course_")
        assert imports and "\nsys.path[:0] = [str(ROOT), " in before, tool
