"""The process that torchrun knows as a rank: it waits for the rank, and ends as that has ended.

Signals from torchrun reach the rank without us, as both are in one process group, which is what
torchrun signals; any others are passed on.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from typing import NoReturn

_PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1}
_PASSED_ON |= {signal.SIGUSR2, signal.SIGCONT, signal.SIGALRM}
_WAITED_FOR = _PASSED_ON | {signal.SIGCHLD}
_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_SET_PDEATHSIG = 1


class Parent:
    """``pid`` is the rank's, ``code`` how it has ended, as in subprocess."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None
        self.asked_at: float | None = None  # when somebody first asked it to end
        # who signals the whole group: nobody else who starts ranks is known to
        self._agent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else 0

    def wait(self, seconds: float) -> None:
        """Let so much time pass, or less: until there is a signal."""
        info = signal.sigtimedwait(_WAITED_FOR, seconds)
        if info is not None and info.si_signo in _PASSED_ON:
            if info.si_signo in _TO_END:
                self.asked_at = self.asked_at or time.time()
            typed = info.si_code > 0  # at a terminal: the system signals its whole group
            if info.si_pid != self._agent and not typed and self.code is None:
                os.kill(self.pid, info.si_signo)
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None

    def wait_for_end(self) -> int:
        """Wait until the rank has ended; returns how it has."""
        while self.code is None:
            self.wait(1.0)
        return self.code

    def kill(self) -> None:
        """End the rank, and so the job."""
        os.kill(self.pid, signal.SIGTERM)

    def end(self) -> NoReturn:
        """End as the rank has ended."""
        code = self.code or 0
        if code < 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank's own is enough
            if -code not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(-code, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
            os.kill(os.getpid(), -code)
        os._exit(code if code >= 0 else 128 - code)


def fork() -> Parent | None:
    """The Parent, in the parent; None in the child, which ends when the parent is killed."""
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    if pid := os.fork():
        return Parent(pid)
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return None
