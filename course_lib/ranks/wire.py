"""Messages between the notebook's process and its ranks: a length, then that many bytes.

Both ends are ours, on one machine, and connected before the rank runs anybody's code.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("<Q")


def packed(message: Any) -> bytes:
    """One picklable message as it goes over the wire: in one piece, which wakes its reader once."""
    body = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(body)) + body


def send(sock: socket.socket, message: Any) -> None:
    """Send one picklable message; returns when the last byte is on its way."""
    sock.sendall(packed(message))


def receive(sock: socket.socket) -> Any:
    """Wait for one message. Raises EOFError when the other end has gone."""
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    return pickle.loads(_exactly(sock, length))


def _exactly(sock: socket.socket, count: int) -> bytearray:
    body = bytearray(count)
    view, at = memoryview(body), 0
    while at < count:
        got = sock.recv_into(view[at:])
        if not got:
            raise EOFError("the other end has gone")
        at += got
    return body


class Inbox:
    """The same for a socket that must never block: feed it when it is readable."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.closed = False
        self._buffer = bytearray()

    def read(self) -> list[Any]:
        """The messages that have become complete; sets ``closed`` at end-of-file."""
        while not self.closed:
            try:
                block = self.sock.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionResetError:
                block = b""
            self.closed = not block
            self._buffer += block
        return list(self._messages())

    def _messages(self) -> Any:
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            message = pickle.loads(memoryview(self._buffer)[_LENGTH.size : end].tobytes())
            del self._buffer[:end]
            yield message
