"""Which line of the reader's own code are we in?

A call into torch.distributed passes through frames of torch and of this library before it comes
to the line that somebody wrote. ``find_frame`` walks outwards to that line, and ``line_of`` names
it. Notebook cells live in files with unreadable names; ``name_cells`` says what to call them
("cell [7]"), and ``notebook_cells`` finds all of this notebook's.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from traceback import walk_tb
from types import FrameType, TracebackType

from course_lib.trace import Line

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PYTHON = (sysconfig.get_paths()["stdlib"] + os.sep, os.path.dirname(os.__file__) + os.sep)
# Where pip installs: into an environment, the system, or a home directory (pip install --user).
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_cells: dict[str, str] = {}


def name_cells(names: dict[str, str]) -> None:
    """Call these files by these names from now on: ``{"/tmp/…/123.py": "cell [7]"}``."""
    _cells.update(names)
    _line_at.cache_clear()


def notebook_cells() -> tuple[dict[str, str], dict[str, list[str]]]:
    """Find and name this notebook's cells: file name → "cell [7]", and file name → source lines."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        return {}, {}
    numbers: dict[str, int] = getattr(shell.compile, "_filename_map", {})
    names = {name: f"cell [{number}]" for name, number in numbers.items()}
    name_cells(names)
    return names, {name: linecache.getlines(name) for name in names}


@lru_cache(maxsize=4096)
def is_user_code(filename: str) -> bool:
    """Whether a file is the reader's own: neither a library's, nor ours, nor the interpreter's."""
    if filename in _cells:
        return True
    if filename.startswith("<") and not filename.startswith(("<stdin", "<ipython", "<string")):
        return False
    path = os.path.abspath(filename)
    return not (path.startswith((_HERE, *_PYTHON)) or any(name in path for name in _INSTALLED))


@lru_cache(maxsize=4096)
def _line_at(filename: str, number: int, function: str) -> Line:
    where = _cells.get(filename) or os.path.basename(filename)
    source = linecache.getline(filename, number).strip()
    return Line(where, number, source, sys.intern(function))  # equal traces have equal pickles


def show_lines(file: str, source: str) -> None:
    """Let the lines of a file that is on no disk be shown where they are named."""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)


def find_frame(depth: int = 1) -> FrameType | None:
    """The reader's frame that led to this call, or None where none is the reader's."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and not is_user_code(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def line_of(frame: FrameType) -> Line:
    """The line at which a frame stands."""
    return _line_at(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def stack_lines(traceback: TracebackType | None) -> list[Line]:
    """The reader's lines in a traceback, outermost first."""
    return user_lines(
        (frame.f_code.co_filename, number, frame.f_code.co_name)
        for frame, number in walk_tb(traceback)
    )


def user_lines(frames: Iterable[tuple[str, int, str]]) -> list[Line]:
    """The reader's lines among these frames (file, line number, function), outermost first; that
    of a comprehension is left out where its function has the same.
    """
    lines: list[Line] = []
    for file, number, function in frames:
        line = line_at(file, number, function)
        if line is not None and not (function.startswith("<") and line in lines[-1:]):
            lines.append(line)
    return lines


def line_at(filename: str, number: int, function: str) -> Line | None:
    """The Line for a place that was reported by somebody else, or None if it is a library's."""
    return _line_at(filename, number, function) if is_user_code(filename) else None
