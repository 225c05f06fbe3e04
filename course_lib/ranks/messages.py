"""What the notebook and its ranks say to each other, and how.

    notebook ── Setup, Job ──► rank          rank ── "ready", Outcome ──► notebook

An Outcome is in ``failures``: simulated ranks end in one, too.

A rank has a ``multiprocessing`` Connection, which pickles and waits. The notebook, which must never
wait for one rank alone, has a Channel that speaks the same: a length, then so many bytes of pickle.
"""

from __future__ import annotations

import pickle
import selectors
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from course_lib.ranks.plan import Plan

_LENGTH = struct.Struct("!i")  # as a Connection writes it


@dataclass(frozen=True)
class Setup:
    """Who a rank is, and the world that it lives in."""

    rank: int
    plan: Plan
    environ: dict[str, str]
    idle: float  # seconds after which a rank that was given no job leaves

    @property
    def device(self) -> str:
        return f"cuda:{self.rank}" if self.plan.backend == "nccl" else "cpu"


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
    """One message in one piece, which wakes its reader once."""
    body = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(body)) + body


class Channel:
    """For a socket that must never block: serve it when its selector says so."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.closed = False
        self._in = bytearray()
        self._out = memoryview(b"")

    @property
    def wants(self) -> int:
        """What a selector shall watch it for."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)

    def put(self, message: bytes) -> None:
        """Have the next calls of ``serve`` send it."""
        self._out = memoryview(self._out.tobytes() + message if self._out else message)

    def serve(self) -> list[Any]:
        """Write on, and read: the messages that have become complete; sets ``closed`` once the
        other end is."""
        try:
            while self._out:
                self._out = self._out[self.sock.send(self._out, socket.MSG_DONTWAIT) :]
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                self._out = memoryview(b"")  # nobody is left to read it
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
