"""Seconds on a busy machine: what is slow there may be slow because others compute."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MOST_STRETCH = 10.0
_LOOK = 0.25  # seconds between two looks at who else wants to compute
_RUNNABLE = Path("/proc/loadavg")
_own: Callable[[], int] = lambda: 0  # noqa: E731  # see ``not_counting``


def share() -> float:
    """How much of a processor one who wants to compute gets now: 1 on an idle machine."""
    return 1 / min(MOST_STRETCH, max(1.0, _runnable() / (os.cpu_count() or 1)))


def load_factor() -> float:
    """By how much everything takes longer than on an idle machine: now and in the last minute."""
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(MOST_STRETCH, max(1 / share(), waiting))


def wait(event: threading.Event, seconds: float) -> bool:
    """Wait for the event; False once ``seconds`` of an idle machine have passed without it.

    While more want to compute than there are processors, only a fair share of the time counts.
    """
    while seconds > 0:
        start = time.monotonic()
        if event.wait(min(seconds, _LOOK)):
            return True
        seconds -= (time.monotonic() - start) * share()
    return event.is_set()


@contextmanager
def not_counting(own: Callable[[], int]) -> Iterator[None]:
    """In here threads of which ``own`` says how many want to compute are no reason to wait longer:
    they are those that are waited for."""
    global _own
    before, _own = _own, own
    try:
        yield
    finally:
        _own = before


def _runnable() -> float:
    """How many threads run or want to, without the one that asks and what it does not count."""
    try:
        return int(_RUNNABLE.read_text().split()[3].partition("/")[0]) - 1 - _own()
    except OSError:  # not Linux
        return os.getloadavg()[0]
