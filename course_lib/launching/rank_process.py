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
    """A rank's process, and what its log says of it; ``output`` is what it has printed."""

    def __init__(
        self,
        number: int,
        matcher: CallMatcher,
        files: ExitStack,
        world_socket: socket.socket,
        shared: Sequence[int],
    ) -> None:
        """Have the fork server start it. ``shared`` are the files that all ranks are given;
        ``files`` closes our ends of those that this one is given.
        """
        self.control, its_control = socket.socketpair()
        output, its_output = os.pipe()
        with its_control, os.fdopen(its_output, "wb"):
            files.enter_context(self.control)
            files.callback(os.close, output)
            files.callback(os.close, log := nameless_file("log"))
            files.callback(os.close, stack := nameless_file("stack"))
            its_own = [its_control.fileno(), its_output, log, stack]
            # A message may not be empty, so its one byte is the rank's number.
            socket.send_fds(world_socket, [bytes([number])], [*its_own, *shared])
        super().__init__(number, matcher, Reader(log).read, Stack(stack))
        self.output = RankOutput(number, output)

    @property
    def pid(self) -> int:
        """The process's id; 0 until the fork server has told it."""
        return self.stack.pid

    def wake(self) -> None:
        """Tell it that its RankJob is written down; any byte does."""
        with suppress(OSError):  # it has died, as the fork server will say
            self.control.send(b"!")

    def listen(self) -> bool:
        """Take the byte by which it says that there is news, and read its log. False if there will
        be no more bytes, because it has died.
        """
        is_there = False
        with suppress(ConnectionResetError):  # it has died, and had not read our byte
            is_there = bool(self.control.recv(1))
        self.read_log()
        return is_there
