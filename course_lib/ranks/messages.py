"""What the notebook and its ranks say to each other, and how.

    notebook ── Setup, Job ──► rank          rank ── "ready", Outcome ──► notebook

An Outcome is in ``failures``: simulated ranks end in one, too.

The notebook must never wait for one rank alone. It writes Setup and Job into a file that all ranks
of a world read, and wakes each with a byte. A rank answers through a Connection of
``multiprocessing``: a length, then so many bytes of pickle, which a Channel collects.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from course_lib.ranks.plan import Plan

_LENGTH = struct.Struct("!i")  # as a Connection writes it


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


def framed(message: Any) -> bytes:
    """One message in one piece, as a Connection would send it."""
    body = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(body)) + body


class Channel:
    """The messages that come in on a socket, without ever waiting for the rest of one."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.closed = False
        self._in = bytearray()

    def serve(self) -> list[Any]:
        """The messages that have become complete; sets ``closed`` once the other end is."""
        try:
            while block := self.sock.recv(1 << 20, socket.MSG_DONTWAIT):
                self._in += block
            self.closed = True
        except OSError as error:
            self.closed = not isinstance(error, BlockingIOError)
        return list(self._messages())

    def _messages(self) -> Iterator[Any]:
        while len(self._in) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._in)[0]
            if len(self._in) < end:
                return
            message = pickle.loads(memoryview(self._in)[_LENGTH.size : end].tobytes())
            del self._in[:end]
            yield message
