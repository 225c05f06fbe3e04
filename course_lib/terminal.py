"""What stands in for the terminal in a rank of either engine: output, logging, input."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

_LIBRARIES = {"torch"}  # they set up handlers in every process


def show(text: str) -> None:
    """Print what ranks have printed, from the cell's own thread, where Jupyter and nbval look. What
    the stream cannot encode is written as its code.
    """
    if text:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()


def handler_for_rank(handler: logging.Handler) -> logging.Handler | None:
    """A copy of a log handler for a rank, if it writes to the terminal: a rank has its own output.
    None for a handler that writes elsewhere.
    """
    stream = getattr(handler, "stream", None)
    if type(handler) is not logging.StreamHandler or not _is_terminal(stream):
        return None
    own = _make_handler(handler.level, handler.formatter)
    own.filters = list(handler.filters)
    return own


def _make_handler(level: int, formatter: logging.Formatter | None) -> logging.Handler:
    """One that writes to this process's, or this simulated rank's, standard error."""
    handler = logging.StreamHandler()
    handler.setLevel(level)
    handler.setFormatter(formatter)
    return handler


class LoggerSettings(NamedTuple):
    """What a program has set of a logger; of its handlers only those that write to the terminal."""

    name: str
    level: int
    propagate: bool
    handlers: list[tuple[int, logging.Formatter | None]]


def log_settings() -> list[LoggerSettings]:
    """The settings of this process, for ranks that begin without any and would drop INFO lines."""
    out = []
    loggers = (logging.getLogger(name) for name in list(logging.root.manager.loggerDict))
    for logger in (logging.root, *loggers):
        handlers = [
            (h.level, h.formatter if type(h.formatter) is logging.Formatter else None)
            for h in logger.handlers
            if handler_for_rank(h) and logger.name.partition(".")[0] not in _LIBRARIES
        ]
        if handlers or logger.level:
            out.append(LoggerSettings(logger.name, logger.level, logger.propagate, handlers))
    return out


def set_loggers(settings: Iterable[LoggerSettings]) -> None:
    """Give this process's loggers the settings of another process."""
    for name, level, propagate, handlers in settings:
        logger = logging.getLogger(None if name == "root" else name)
        logger.setLevel(level)
        logger.propagate = propagate
        for its_level, formatter in handlers:
            logger.addHandler(_make_handler(its_level, formatter))


def _is_terminal(stream: object) -> bool:
    """Whether a stream is this process's output, or was before a simulation began: what stands in
    its place meanwhile, private.py's ``_Pages``, keeps it as ``_original``.
    """
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return any(stream is own or stream is getattr(own, "_original", own) for own in streams)


def no_spawn(function: object) -> NoReturn:
    """Raise what a rank says if it would start ranks, as ``mp.spawn`` does in scripts."""
    name = getattr(function, "__name__", "the function")
    raise RuntimeError(
        f"the ranks are there already, and mp.spawn({name}) would start more: call {name} itself, "
        f'with int(os.environ["RANK"]) as its first argument, and give init=False if it forms the '
        "group"
    )


def no_keyboard() -> NoReturn:
    """Raise what a rank says if it asks for input, or stops at a breakpoint."""
    raise RuntimeError(
        "a rank has no keyboard: pass what it asks for as an argument; to step through the "
        "function, call it in the notebook itself, where it is the only rank"
    )


def arguments() -> list[str]:
    """The script's name and arguments. In a notebook only the name: the others are the kernel's."""
    is_script = hasattr(sys.modules["__main__"], "__file__")
    return list(sys.argv) if is_script else sys.argv[:1]
