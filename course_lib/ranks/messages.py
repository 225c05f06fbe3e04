"""What the notebook, its ranks and the fork server say to each other, and how.

    notebook ── Setup, Job ──► rank          rank ── "ready", calls, Outcome ──► notebook

Nobody waits for anybody's reading. The notebook writes into a file that all ranks of a world read,
each rank into its log; a byte on the socket between them tells that there is something new. An
Outcome is in ``failures``: simulated ranks end in one, too.
"""

from __future__ import annotations

import pickle
import socket
from dataclasses import dataclass
from typing import Any

from course_lib.ranks.plan import Plan


@dataclass(frozen=True)
class Setup:
    """The world that a rank lives in."""

    plan: Plan
    environ: dict[str, str]
    port: int  # of the store where a function that forms the group itself finds the others
    idle: float  # seconds after which a rank that was given no job leaves


@dataclass(frozen=True)
class Job:
    """What it shall do. ``call`` is what ``pack_call`` made of the function and its arguments."""

    call: bytes
    t0: float  # time.perf_counter() that counts as zero
    cwd: str
    path: list[str]
    record: bool
    cells: dict[str, str]  # file name → "cell [7]"
    sources: dict[str, list[str]]  # file name → its lines


class Channel:
    """What the fork server says on a world's socket, one pickle in each packet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.closed = False

    def serve(self) -> list[Any]:
        """What has come, without waiting; sets ``closed`` once the other end is."""
        messages = []
        try:
            while packet := self.sock.recv(1 << 10, socket.MSG_DONTWAIT):
                messages.append(pickle.loads(packet))
            self.closed = True
        except OSError as error:
            self.closed = not isinstance(error, BlockingIOError)
        return messages
