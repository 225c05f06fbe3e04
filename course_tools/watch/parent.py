"""The process that torchrun knows as a rank: it forks the rank, waits for it, and ends as it ended.

torchrun signals the whole process group, so its signals reach the rank by themselves. The parent
passes all others on.
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
    """The rank's parent. ``pid`` is the rank; ``code`` is how it ended, as in subprocess."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None
        self.asked_at: float | None = None  # when somebody first asked it to end
        # torchrun's agent, which signals the whole group; no other launcher is known to do so
        self._agent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else 0

    def wait(self, seconds: float) -> None:
        """Wait for a signal, but not longer than so many seconds; pass it on to the rank."""
        info = signal.sigtimedwait(_WAITED_FOR, seconds)
        if info is not None and info.si_signo in _PASSED_ON:
            if info.si_signo in _TO_END:
                self.asked_at = self.asked_at or time.time()
            typed = info.si_code > 0  # at a terminal: then the system signals the whole group
            if info.si_pid != self._agent and not typed and self.code is None:
                os.kill(self.pid, info.si_signo)
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None

    def wait_for_end(self) -> int:
        """Wait until the rank has ended, and return its code."""
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
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank's core file is enough
            if -code not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(-code, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
            os.kill(os.getpid(), -code)
        os._exit(code if code >= 0 else 128 - code)


def fork() -> Parent | None:
    """Fork. Returns a Parent in the parent; None in the child, which dies with its parent."""
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    if pid := os.fork():
        return Parent(pid)
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return None
