"""A rank's diary: a file that outlives the rank.

    ┌──────┬────────┬────────┬────────┬────────┬────────┬───────┐
    │ full │ length │ record │ length │ record │ length │   …   │
    └──────┴────────┴────────┴────────┴────────┴────────┴───────┘

``full`` is one byte, 1 once there was no room for more. A record is a marshalled tuple, whose first
word says what it is. The rank writes each in one piece, and whoever reads leaves a last one that is
not complete for the next time. The file has no name: it is gone when the last process that knows
it is.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import struct
import threading
from collections.abc import Iterator
from typing import Any

_LENGTH = struct.Struct("<I")
MOST = 1 << 28  # bytes after which recording stops


def nameless_file(purpose: str) -> int:
    """A file descriptor of an empty file in memory that has no name: for logs, and for others."""
    return os.memfd_create(f"course_lib-{purpose}")


class Writer:
    """Appends records; used by one rank, from any of its threads."""

    def __init__(self, fd: int) -> None:
        self.lock = threading.RLock()
        self._fd = fd
        self._full = False  # no later record shall find room: it may speak of what is missing
        self._at = os.pwrite(fd, b"\0", 0)

    def append(self, *record: Any) -> None:
        """Write one record of marshallable values."""
        body = marshal.dumps(record)
        block = _LENGTH.pack(len(body)) + body
        with self.lock:
            if self._full:
                return
            written = 0
            if self._at + len(block) <= MOST:
                with contextlib.suppress(OSError):  # the system may have set a limit of its own
                    written = os.pwrite(self._fd, block, self._at)
            self._at += written
            if written < len(block):
                self._full = bool(os.pwrite(self._fd, b"\1", 0))


class Reader:
    """Reads what has been written since the last look."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = 1

    @property
    def full(self) -> bool:
        """Whether there was no room for all that was said."""
        return os.pread(self._fd, 1, 0) == b"\1"

    def read(self) -> Iterator[tuple]:
        """The records that are new."""
        body = os.pread(self._fd, max(0, os.fstat(self._fd).st_size - self._at), self._at)
        at = 0
        while at + _LENGTH.size <= len(body):
            start = at + _LENGTH.size
            end = start + _LENGTH.unpack_from(body, at)[0]
            if end > len(body):
                break
            self._at += end - at
            at = end
            yield marshal.loads(body[start:end])
