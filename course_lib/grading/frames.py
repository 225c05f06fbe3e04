"""Plain data over a socket: a length, then so many bytes of JSON. Nothing is ever unpickled here.

One end is the judge, the other a process that runs somebody's code and may send anything. So the
judge's end takes no frame above a stated size, waits no longer than it wants to, and turns
whatever is no JSON object into one error.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

MOST_SECONDS = 1e6  # that a wait may be told to take
_LENGTH = struct.Struct("<I")
MOST = 16 << 20  # bytes of a frame; as JSON it may take twenty times as much to read
TICK = 0.1  # seconds after which a waiting reader looks up


class Malformed(Exception):
    """The other end has sent what it may not send."""


class Ended(Exception):
    """The other end has gone."""


def pack(message: dict[str, Any]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MOST:
        raise ValueError(f"{len(body):,} bytes at once; {MOST:,} are what an answer may send")
    return _LENGTH.pack(len(body)) + body


class Talk:
    """One end. ``patient`` is asked now and then, at every tick, whether to go on."""

    def __init__(self, sock: socket.socket, patient: Callable[[], bool] | None = None) -> None:
        self.sock, self._patient = sock, patient
        self._buffer = bytearray()
        if patient is not None:
            sock.settimeout(TICK)

    def send(self, message: dict[str, Any]) -> None:
        data = memoryview(pack(message))
        try:
            while data:
                try:
                    data = data[self.sock.send(data) :]
                except TimeoutError:
                    self._look_up()
        except OSError as error:
            raise Ended(str(error)) from None

    def receive(self) -> dict[str, Any]:
        """The next frame. Raises Ended, Malformed, or TimeoutError when patience has run out."""
        while True:
            self._look_up()  # also where bytes come, and never enough
            if len(self._buffer) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer)
                if length > MOST:
                    raise Malformed(f"a frame of {length} bytes")
                end = _LENGTH.size + length
                if len(self._buffer) >= end:
                    body = bytes(self._buffer[_LENGTH.size : end])
                    del self._buffer[:end]
                    return _object(body)
            self._read()

    def _read(self) -> None:
        try:
            block = self.sock.recv(1 << 18)
        except TimeoutError:
            return
        except OSError as error:
            raise Ended(str(error)) from None
        if not block:
            raise Ended("end of file")
        self._buffer += block

    def _look_up(self) -> None:
        if self._patient is not None and not self._patient():
            raise TimeoutError("nothing came in time")


def _object(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {type(error).__name__}") from None
    if not isinstance(message, dict):
        raise Malformed("no JSON object")
    return message
