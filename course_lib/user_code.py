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
from functools import lru_cache, partial
from importlib.metadata import distributions
from traceback import walk_tb
from types import CodeType, FrameType, TracebackType
from typing import Any

from course_lib.trace import Line
from course_lib.versions import PACKAGES

_HOUSE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OURS = tuple(os.path.join(_HOUSE, name, "") for name in PACKAGES)
_PYTHON = (sysconfig.get_paths()["stdlib"] + os.sep, os.path.dirname(os.__file__) + os.sep)
# Where pip installs: into an environment, the system, or a home directory (pip install --user).
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
# How the names of code begin that libraries generate, for whatever module.
_GENERATED = (
    "<frozen ",
    "<eval_with_key>",
    "<attrs generated ",
    "<__array_function__ ",
    "<decorator-",
)
_NEVER_CLAIMED = {"torch", *PACKAGES, "__main__", *sys.stdlib_module_names}
_cells: dict[str, str] = {}
# No path has this character. A Line shows so many parts of a file's path.
_claimed, path_parts = "\0", 1


def name_cells(names: dict[str, str]) -> None:
    """Call these files by these names from now on: ``{"/tmp/…/123.py": "cell [7]"}``."""
    _cells.update(names)
    _line_at.cache_clear()  # for these; and what is typed at a prompt is often called the same


def notebook_cells() -> dict[str, str]:
    """Find and name this notebook's cells: file name → "cell [7]"."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    numbers: dict[str, int] = getattr(shell.compile, "_filename_map", {}) if shell else {}
    names = {name: f"cell [{number}]" for name, number in numbers.items()}
    name_cells(names)
    return names


def claim(function: Any) -> None:
    """Treat the package of this function as the user's code from now on, even if it is installed,
    and no other installed package. torch, this library and Python's own modules never count.
    """
    while isinstance(function, partial):
        function = function.func
    top = (getattr(function, "__module__", None) or "").partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    claimed = "\0"
    if file is not None and top not in _NEVER_CLAIMED:
        folder, name = os.path.split(os.path.abspath(file))
        claimed = folder + os.sep if name == "__init__.py" else file
    claim_place(claimed)


def claim_place(place: str) -> None:
    """Treat a script's file, or all of a folder whose name ends in ``/``, as the user's code from
    now on, wherever it lies, and no other installed code.
    """
    global _claimed
    if place != _claimed:
        _claimed = place
        is_user_code.cache_clear()
        _is_installed.cache_clear()


@lru_cache(maxsize=4096)
def is_user_code(filename: str, module: str | None = "__main__") -> bool:
    """Whether code is the reader's own: all code is, unless it is known to be a library's, ours or
    the interpreter's.

    Front ends give their input names of their own, "<stdin>" or "<command-12>", so a name that is
    on no disk says nothing. Then ``module`` decides, the ``__name__`` in the code's globals.
    """
    if filename in _cells:
        return True
    if filename.startswith(_GENERATED) or _is_librarys(module):
        return False
    return filename.startswith("<") or not _is_installed(filename)


def is_user_frame(frame: FrameType) -> bool:
    """Whether a frame runs the reader's own code."""
    code = frame.f_code
    if code.co_qualname.startswith("__create_fn__."):  # of a dataclass, in the reader's module
        return False
    return is_user_code(code.co_filename, frame.f_globals.get("__name__"))


def _is_librarys(module: str | None) -> bool:
    """Whether a module belongs to an installed package. Its own file may lie elsewhere: torch's
    compiler writes modules of torch into a folder of its own.
    """
    file = getattr(sys.modules.get(str(module).partition(".")[0]), "__file__", None)
    return module != "__main__" and file is not None and _is_installed(file)


@lru_cache(maxsize=4096)
def _is_installed(file: str) -> bool:
    """Whether a file belongs to Python, to this library, or to an installed package."""
    path = os.path.abspath(file)
    return not path.startswith(_claimed) and (
        path.startswith((*_OURS, *_PYTHON))
        or any(name in path for name in _INSTALLED)
        or any(_was_put_by_pip(folder, path) for folder in sys.path)
    )


def _was_put_by_pip(folder: str, path: str) -> bool:
    """Whether pip has put a file, or its package, into a folder of any name (pip install -t)."""
    prefix = folder.rstrip(os.sep) + os.sep
    if prefix == os.sep or not path.startswith(prefix):
        return False
    first = path.removeprefix(prefix).split(os.sep)[0]
    return any(
        line.startswith((first + ",", first + "/"))
        for found in distributions(path=[folder])
        for line in (found.read_text("RECORD") or "").splitlines()
    )


@lru_cache(maxsize=4096)
def _line_at(filename: str, number: int, function: str) -> Line:
    where = _cells.get(filename) or "/".join(filename.split(os.sep)[-path_parts:])
    source = linecache.getline(filename, number).strip()
    # equal traces have equal pickles
    return Line(where, number, source, sys.intern(function), sys.intern(filename))


def show_lines(file: str, source: str) -> None:
    """Give the text of a file that is on no disk, so that its lines can be shown."""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)


def find_source(code: CodeType) -> str:
    """The text of the file that code comes from, if the file is on no disk and the front end has
    kept the text; otherwise "".
    """
    file = code.co_filename
    if os.path.exists(file):
        return ""
    lines = linecache.getlines(file)
    # Python 3.13 keeps its input by code, and "<string>" is the name of much else
    by_code = getattr(linecache, "_getlines_from_code", None)
    if not lines and by_code and file != "<string>" and (lines := by_code(code)):
        show_lines(file, "".join(lines))
    return "".join(lines)


@lru_cache
def say_if_lines_are_lost(file: str) -> None:
    """Say once, of a file whose text nobody has kept, that its lines cannot be shown."""
    if not linecache.getlines(file):
        print(
            f"course_lib: nobody keeps the text of {file}, so its lines are named by their "
            "numbers alone; write the code into a file or a notebook to see them",
            file=sys.stderr,
        )


def find_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the reader's, from this one outwards; None if there is none."""
    while frame is not None and not is_user_frame(frame):
        frame = frame.f_back
    return frame


def sharded_module(frame: FrameType | None) -> str:
    """The name of the module for which ``fully_shard`` makes the call that this frame is in; "" if
    it makes none, or has not named its modules yet.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp._fully_shard._fsdp_param_group")
    while fsdp is not None and frame is not None and not is_user_frame(frame):
        if frame.f_code.co_filename == fsdp.__file__:
            name = getattr(frame.f_locals.get("self"), "_module_fqn", None)
            return "the root module" if name == "" else name or ""
        frame = frame.f_back
    return ""


def line_of(frame: FrameType) -> Line:
    """The line at which a frame stands."""
    return _line_at(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def stack_lines(traceback: TracebackType | None) -> list[Line]:
    """The reader's lines in a traceback, outermost first."""
    return frame_lines(walk_tb(traceback))


def frame_lines(frames: Iterable[tuple[FrameType, int]]) -> list[Line]:
    """The reader's lines among these frames, each with its line number, outermost first."""
    return user_lines(
        (frame.f_code.co_filename, number, frame.f_code.co_name)
        for frame, number in frames
        if is_user_frame(frame)
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
    """The Line of a place that another process has reported; None if it is a library's."""
    return _line_at(filename, number, function) if is_user_code(filename) else None
