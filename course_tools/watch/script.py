"""Runs a script or a module as Python itself does: as ``__main__``, in a module of its own."""

from __future__ import annotations

import argparse
import io
import os
import runpy
import sys
import types
from collections.abc import Callable, Sequence

from course_lib import user_code

# Files whose frames a traceback must not show: they run the script, and wrap torch's functions.
_HOUSE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_PLACES = ("course_tools/watch", "course_lib/recording", "course_lib/watch.py")
_OURS = tuple(os.path.join(_HOUSE, place) for place in _PLACES)
_ours: types.ModuleType  # our own __main__, kept alive: its functions still run


def add_script(made: argparse.ArgumentParser) -> None:
    """Let a command be followed by a script, or by a module, and its arguments."""
    made.add_argument("-m", dest="is_module", action="store_true", help="run a module as a script")
    made.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="SCRIPT.py", help="the script, and its arguments"
    )


def claim_script(words: Sequence[str], is_module: bool) -> None:
    """Let the script be the user's own code, even if it is one of this library's, and show lines
    with three parts of their path.
    """
    user_code.path_parts = 3
    if not is_module:
        script = os.path.abspath(words[0])
        user_code.claim_place(script)
        user_code.name_cells({script: os.path.basename(script)})


def run_script(words: Sequence[str], is_module: bool, failed: Callable) -> None:
    """Run ``words``: a file or a module, and its arguments.

    ``failed`` is called with an exception before anything else sees it.
    """
    try:
        run_as_main(words, is_module)
    except BaseException as error:
        failed(error)
        if not isinstance(error, SystemExit):
            _print_traceback(error)
        raise


def run_as_main(words: Sequence[str], is_module: bool) -> None:
    """Run a file or a module as ``__main__``, in this process or in a simulated rank."""
    global _ours
    _ours = sys.modules["__main__"]
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.argv = list(words)
    if is_module:
        runpy._run_module_as_main(words[0])  # type: ignore[attr-defined]
    else:
        _run_file(words[0], main)


def _run_file(path: str, main: types.ModuleType) -> None:
    file = os.path.abspath(path)
    try:
        with io.open_code(file) as opened:
            source = opened.read()
    except OSError as error:
        words = f"can't open file {file!r}: [Errno {error.errno}]"
        print(f"{sys.executable}: {words} {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    main.__dict__.update(__file__=file, __cached__=None)
    exec(compile(source, file, "exec", dont_inherit=True), main.__dict__)


def _print_traceback(error: BaseException) -> None:
    """Print the traceback without our frames, and keep Python from printing its own."""
    own, trace = [], error.__traceback__
    while trace:
        if not trace.tb_frame.f_code.co_filename.startswith(_OURS):
            own.append(trace)
        trace = trace.tb_next
    for inner in reversed(own):
        inner.tb_next, trace = trace, inner
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    sys.excepthook = lambda *_: None
