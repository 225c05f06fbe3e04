"""Where a process stands: what it answers to a signal, and what the system knows of it."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType

import torch

from course_lib.trace import Line
from course_lib.user_code import user_lines

_BACKWARD = torch.autograd.graph._engine_run_backward.__code__
_TORCH = os.path.dirname(torch.__file__) + os.sep
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.M)


class Stack:
    """The stack of one process, whose faulthandler writes it into a file: at a crash, and whenever
    the signal ``asks`` comes. ``pid`` is 0 while nobody knows it, or if it is on another machine.
    """

    def __init__(self, fd: int, pid: int = 0, asks: int = signal.SIGUSR1) -> None:
        self._fd, self.pid, self._asks = fd, pid, asks

    def ask(self) -> None:
        """Have the process write its stack down; what it does goes on undisturbed."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, self._asks)

    @property
    def text(self) -> str:
        size = os.fstat(self._fd).st_size
        return os.pread(self._fd, size, 0).decode("utf-8", "replace")

    @property
    def _frames(self) -> list[tuple[str, int, str]]:
        """File, line number and function of the main thread's frames, innermost first: faulthandler
        lists that thread last.
        """
        main = re.split(r"^(?:Current thread|Thread) .*$", self.text, flags=re.M)[-1]
        return [(file, int(number), function) for file, number, function in _FRAME.findall(main)]

    @property
    def lines(self) -> list[Line]:
        """The reader's lines in the main thread's stack, outermost first."""
        return user_lines(self._frames[::-1])

    @property
    def is_in_torch(self) -> bool:
        """Whether the main thread was in a function of torch's when it was last asked. If torch had
        called one of the reader's functions, or waited in one of Python's, it was not.
        """
        return bool(self._frames) and self._frames[0][0].startswith(_TORCH)

    def cpu_seconds(self) -> float | None:
        """The CPU time of the process so far; None if its main thread does not sleep, because it
        runs or was stopped, and None if nobody knows.
        """
        try:
            words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        state, user, system = words[0], int(words[11]), int(words[12])
        return (user + system) / os.sysconf("SC_CLK_TCK") if state == "S" else None


def in_backward() -> bool:
    """Whether this is called from a backward pass; one on a GPU has threads of its own."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not _BACKWARD:
        frame = frame.f_back
    return frame is not None or threading.current_thread() is not threading.main_thread()
