"""One rank as the notebook sees it: its socket, pipe and files, and what is known of it."""

from __future__ import annotations

import os
import socket

from course_lib.failures import Outcome
from course_lib.ranks.history import History
from course_lib.ranks.log import nameless_file
from course_lib.ranks.matching import CallMatcher
from course_lib.ranks.messages import Channel
from course_lib.ranks.output import RankOutput
from course_lib.trace import Event


class Rank:
    def __init__(self, number: int, matcher: CallMatcher) -> None:
        self.number, self.pid, self.ready = number, 0, False
        self.outcome: Outcome | None = None  # None while it runs
        self.control, self._their_control = socket.socketpair()
        out, self._their_out = os.pipe()
        self._log_fd, self._stack_fd = nameless_file("log"), nameless_file("stack")
        self.channel = Channel(self.control)
        self.output = RankOutput(number, out)
        self.history = History(number, self._log_fd, matcher)

    def start(self, world_socket: socket.socket, store_fd: int) -> None:
        """Have the fork server start it, with its own ends of all this."""
        files = [self._their_out, self._log_fd, self._stack_fd, store_fd]  # as worker.main has them
        try:
            socket.send_fds(world_socket, [b"r"], [self._their_control.fileno(), *files])
        finally:
            self._their_control.close()
            os.close(self._their_out)

    def close_files(self) -> None:
        self.control.close()
        for fd in (self.output.fd, self._log_fd, self._stack_fd):
            os.close(fd)

    @property
    def returned(self) -> bool:
        return self.outcome is not None and self.outcome.state == "returned"

    @property
    def blocked_in(self) -> Event | None:
        """The call that it stands in, if it runs and its log shows one."""
        return self.history.blocked_in if self.outcome is None else None

    @property
    def stack(self) -> str:
        """What faulthandler has written: at a crash, or when it was asked by a signal."""
        size = os.fstat(self._stack_fd).st_size
        return os.pread(self._stack_fd, size, 0).decode("utf-8", "replace")
