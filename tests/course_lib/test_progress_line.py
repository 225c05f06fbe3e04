"""A line for whoever looks on: it comes, it goes, and where nobody looks on there is none."""

from __future__ import annotations

import io
import os
import pty
import queue
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from course_lib import progress_line
from course_lib.progress_line import ProgressLine
from course_staff.authoring.execute import listening_in
from course_staff.grading import grade

ROOT = Path(__file__).resolve().parents[2]


class Terminal(io.StringIO):
    """Keeps what is shown now, and tells of every change."""

    def __init__(self, tty: bool = True) -> None:
        super().__init__()
        self.tty, self.now = tty, ""
        self.seen: queue.Queue[str] = queue.Queue()

    def isatty(self) -> bool:
        return self.tty

    def write(self, text: str) -> int:
        self.now = shown(self.now + text)
        self.seen.put(self.now)
        return len(text)


def shown(text: str) -> str:
    """What a terminal or a notebook shows of it."""
    out = ""
    for letter in text.replace("\x1b[K", ""):
        out = out[:-1] if letter == "\b" else out + letter
    return out


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "SECONDS", 0.0)
    monkeypatch.setattr(progress_line, "EVERY", 0.001)
    monkeypatch.delenv("CI", raising=False)


def test_it_shows_how_far_it_is_and_takes_itself_away(at_once, monkeypatch):
    terminal = Terminal()
    terminal.write("before ")
    monkeypatch.setattr(sys, "stderr", terminal)
    far = iter(["one of two", "two of two", *["x" * 200] * 1000])
    with ProgressLine(lambda: next(far)) as line:
        terminal.seen.get()
        assert terminal.seen.get(timeout=60) == "before one of two, 0 s so far"
        assert terminal.seen.get(timeout=60) == "before two of two, 0 s so far"
        assert terminal.seen.get(timeout=60) == "before " + "x" * progress_line._LONGEST
        line.hide()
        while terminal.seen.get(timeout=60) != "before ":
            pass
    assert terminal.now == "before "


def test_what_is_over_in_less_than_five_seconds_shows_nothing(monkeypatch):
    assert progress_line.SECONDS == 5
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(progress_line, "SECONDS", 1000.0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressLine(lambda: "never"):
        pass
    assert terminal.seen.empty()


def kernel(allow_stdin: bool | None) -> types.SimpleNamespace:
    content = {} if allow_stdin is None else {"allow_stdin": allow_stdin}
    one = types.SimpleNamespace(get_parent=lambda: {"content": content} if content else {})
    return types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=one))


class OutStream(Terminal):
    """By its module it is a kernel's."""

    __module__ = "ipykernel.iostream"


@pytest.mark.parametrize(
    ("ci", "tty", "shell", "out", "watched"),
    [
        ("", True, None, Terminal, True),
        ("true", True, None, Terminal, False),
        ("", False, None, Terminal, False),
        ("", False, kernel(True), OutStream, True),
        ("true", False, kernel(True), OutStream, False),
        ("", True, kernel(False), OutStream, False),
        ("", True, kernel(None), OutStream, False),
        ("", True, kernel(True), Terminal, False),
    ],
    ids=["terminal", "CI", "pipe", "JupyterLab", "Lab in CI", "nbclient", "no request", "captured"],
)
def test_it_shows_where_somebody_looks_on(at_once, monkeypatch, ci, tty, shell, out, watched):
    monkeypatch.setitem(sys.modules, "IPython", shell or types.SimpleNamespace(get_ipython=bool))
    monkeypatch.setenv("CI", ci)
    terminal, cell = Terminal(tty), out()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", cell)
    place, other = (cell, terminal) if shell else (terminal, cell)
    with ProgressLine(lambda: "half"):
        if watched:
            assert place.seen.get(timeout=60) == "half, 0 s so far"
    assert place.now == ""
    assert place.seen.empty() or watched
    assert other.seen.empty()


def test_grading_says_how_many_are_done_between_its_lines(at_once, monkeypatch, capsys):
    terminal = Terminal()

    def grade_one(job, name, file):
        number = name[-1]
        while terminal.seen.get(timeout=60) != f"{number} of 2 submissions graded, 0 s so far":
            pass
        return grade.Marked(name, "", [], problem="empty"), True

    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(grade, "grade_one", grade_one)
    files = {name: Path(name) for name in ("student0", "student1")}
    grade.grade_all(None, files, jobs=1)
    assert terminal.now == ""
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["[1/2] student0", "[2/2] student1"]


# ---- a simulation that lasts until it is told to end ---------------------------------------------

LONG = """\
import os, time
from course_lib import progress_line, simulate
progress_line.SECONDS = 0.0

def until_told():
    while not os.path.exists("go"):
        {wait}

print("before")
simulate(until_told, world_size=2)
print("after")
"""


@pytest.mark.slow
def test_a_terminal_shows_it_and_keeps_nothing_of_it(tmp_path: Path):
    script = tmp_path / "long.py"
    script.write_text(LONG.format(wait="pass"))
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    environment["PYTHONPATH"] = str(ROOT)
    terminal, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, script],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)
        said = ""
        while "simulating 2 ranks" not in shown(said):
            said += os.read(terminal, 1 << 12).decode()
        (tmp_path / "go").touch()
        assert process.communicate(timeout=120)[0] == "before\nafter\n"
        os.set_blocking(terminal, False)
        said += os.read(terminal, 1 << 16).decode()
    finally:
        os.close(terminal)
    assert shown(said) == ""


@pytest.mark.slow
def test_nbclient_stores_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nor would nbval see it: both run cells that may ask nobody."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    code = LONG.format(wait="open('go', 'w') if time.perf_counter() > 1 else time.sleep(0.001)")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    where = {"metadata": {"path": str(tmp_path)}}
    with tempfile.TemporaryDirectory() as short:
        config = listening_in(short)
        NotebookClient(notebook, timeout=120, resources=where, config=config).execute()
    outputs = notebook.cells[0].outputs
    assert "".join(output.text for output in outputs) == "before\nafter\n"
