"""A line for whoever looks on: it comes, it goes, and where nobody looks on there is none."""

from __future__ import annotations

import io
import os
import pty
import queue
import sys
import threading
import types
from pathlib import Path

import pytest

from course_lib import progress_line, simulate
from course_lib.progress_line import ProgressLine
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


def kernel(allow_stdin: bool) -> types.SimpleNamespace:
    one = types.SimpleNamespace(get_parent=lambda: {"content": {"allow_stdin": allow_stdin}})
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
        ("", True, kernel(False), OutStream, False),
        ("", True, kernel(True), Terminal, False),
    ],
    ids=["terminal", "CI", "pipe", "JupyterLab", "nbclient", "captured"],
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


def test_of_a_simulation_a_terminal_shows_it_and_keeps_nothing(at_once, monkeypatch, tmp_path):
    go, (terminal, theirs) = tmp_path / "go", pty.openpty()
    said = ""

    def read() -> None:
        nonlocal said
        while "simulating 2 ranks" not in shown(said):
            said += os.read(terminal, 1 << 12).decode()
        go.touch()

    def until_told() -> None:
        while not go.exists():
            pass

    reader = threading.Thread(target=read)
    try:
        with open(theirs, "w") as screen:
            monkeypatch.setattr(sys, "stderr", screen)
            reader.start()
            simulate(until_told, world_size=2)
            reader.join()
            os.set_blocking(terminal, False)
            with pytest.raises(BlockingIOError):  # there is no more
                while True:
                    said += os.read(terminal, 1 << 16).decode()
    finally:
        os.close(terminal)
    assert shown(said) == ""
