"""Interrupts that come between two steps, and not in the middle of one.

Python raises KeyboardInterrupt between any two instructions, even between the start of a process
and the assignment that remembers it. Inside ``with Interrupts() as interrupts``, an interrupt is
kept until ``with interrupts.allowed()``, where all the waiting is done. After the first one, more
of them are kept until the clearing away is over.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self


class Interrupts:
    """Holds back SIGINT where that has a handler and this thread is the one that gets it."""

    _allowed = _kept = False

    def __enter__(self) -> Self:
        usual = signal.getsignal(signal.SIGINT)
        here = threading.current_thread() is threading.main_thread()
        self._usual: Any = usual if here and callable(usual) else None
        if self._usual:
            signal.signal(signal.SIGINT, self._heard)
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _traceback: Any) -> None:
        if self._usual:
            signal.signal(signal.SIGINT, self._usual)
        if self._kept and not isinstance(error, KeyboardInterrupt):
            self._usual(signal.SIGINT, None)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let them come, the one that was kept first."""
        self._allowed = True
        try:
            if self._kept:
                self._heard(signal.SIGINT, None)
            yield
        finally:
            self._allowed = False

    def _heard(self, number: int, frame: Any) -> None:
        self._kept = not self._allowed
        if self._allowed:
            self._allowed = False  # nobody stops the clearing away that follows
            self._usual(number, frame)
            self._allowed = True  # it was not meant to stop anything
