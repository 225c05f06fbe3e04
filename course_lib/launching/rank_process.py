"""One rank as the notebook sees it: a process, at the other end of a socket, a pipe and files."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from course_lib.diagnosis.matching import CallMatcher
from course_lib.launching.output import RankOutput
from course_lib.recording.log import Reader, nameless_file
from course_lib.recording.rank_state import RankState
from course_lib.recording.stack import Stack


class RankProcess(RankState):
    """What its log says of it, and the process; ``output`` is what that has printed."""

    def __init__(
        self,
        number: int,
        matcher: CallMatcher,
        files: ExitStack,
        world_socket: socket.socket,
        shared: Sequence[int],
    ) -> None:
        """Have the fork server start it; ``files`` closes our ends of what it is given."""
        self.control, its_control = socket.socketpair()
        output, its_output = os.pipe()
        with its_control, os.fdopen(its_output, "wb"):
            files.enter_context(self.control)
            files.callback(os.close, output)
            files.callback(os.close, log := nameless_file("log"))
            files.callback(os.close, stack := nameless_file("stack"))
            its_own = [its_control.fileno(), its_output, log, stack]
            socket.send_fds(world_socket, [b"r"], [*its_own, *shared])  # as worker.main has them
        super().__init__(number, matcher, Reader(log).read, Stack(stack))
        self.output = RankOutput(number, output)
        self.wake(number)

    @property
    def pid(self) -> int:
        """0 until the fork server has told it."""
        return self.stack.pid

    def wake(self, byte: int = 0) -> None:
        """Tell it that there is something to read; its first byte is its number."""
        with suppress(OSError):  # the fork server will say that it has died
            self.control.send(bytes([byte]))

    def listen(self) -> bool:
        """After its own byte: read its log; whether there may be another byte."""
        there = False
        with suppress(ConnectionResetError):  # it has died, and had not read ours
            there = bool(self.control.recv(1))
        self.read_log()
        return there
