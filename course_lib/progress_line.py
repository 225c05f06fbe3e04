"""One line that says how far something long has come, for a person who looks on.

It appears after five seconds and is gone when the work ends. If no person looks on, as in
continuous integration, in a pipe, or under nbclient and nbval, not a byte is written.

    with ProgressLine(lambda: f"{done} of {total}"):
        …
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

SECONDS = 5.0  # before the line comes
EVERY = 0.5  # seconds between two looks at how far it is
_LONGEST = 79  # a terminal cannot take back a line that has wrapped
_REST = "\x1b[K"  # to a terminal: clear from here to the end of the line


class ProgressLine:
    """Shows ``say()`` and the seconds so far while a with-block lasts.

    ``say`` is called in a thread of its own. Call ``hide`` before you print in the block. The line
    goes to ``terminal`` if that is given, or to the reader's cell or terminal if there is one.
    """

    def __init__(self, say: Callable[[], str], terminal: TextIO | None = None) -> None:
        self._say = say
        self._stream, self._rest = (terminal, _REST) if terminal else _find_onlooker()
        self._shown = ""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, name="progress line", daemon=True)

    def __enter__(self) -> ProgressLine:
        if self._stream is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        if self._stream is not None:
            self._thread.join()
        self.hide()

    def hide(self) -> None:
        """Take the line away, until it is time for the next look."""
        self._show("")

    def _keep_up(self) -> None:
        start = time.monotonic()
        wait = SECONDS
        while not self._over.wait(wait):
            self._show(f"{self._say()}, {time.monotonic() - start:.0f} s so far"[:_LONGEST])
            wait = EVERY

    def _show(self, text: str) -> None:
        with self._lock:
            if self._stream is not None and (text or self._shown):
                # A notebook, too, takes back a character for each of these.
                self._stream.write("\b" * len(self._shown) + self._rest + text)
                self._stream.flush()
            self._shown = text


def _find_onlooker() -> tuple[TextIO | None, str]:
    """The stream at which a person looks, if there is one, and what clears a line's rest there."""
    nobody = None, ""
    if os.environ.get("CI"):
        return nobody
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return (sys.stderr, _REST) if sys.stderr and sys.stderr.isatty() else nobody
    # A front end with a person before it lets the kernel ask that person.
    asked = kernel.get_parent().get("content", {}).get("allow_stdin")
    captured = type(sys.stdout).__module__ != "ipykernel.iostream"
    return (sys.stdout, "") if asked and not captured else nobody
