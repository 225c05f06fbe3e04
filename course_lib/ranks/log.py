"""A rank's diary: a file that outlives the rank.

    ┌────────┬────────┬────────┬────────┬────────┬───────┐
    │ length │ record │ length │ record │ length │   …   │
    └────────┴────────┴────────┴────────┴────────┴───────┘

A record is a marshalled tuple, whose first word says what it is. The rank writes each in one piece,
and whoever reads leaves a last one that is not complete for the next time. The file has no name: it
is gone when the last process that knows it is.
"""

from __future__ import annotations

import marshal
import os
import struct
import threading
from collections.abc import Iterator
from typing import Any

_LENGTH = struct.Struct("<I")
MOST = 1 << 28  # bytes after which recording stops
_FULL = ("full",)  # the last record, where there was no room for more


def nameless_file(purpose: str) -> int:
    """A file descriptor of an empty file in memory that has no name."""
    return os.memfd_create(f"course_lib-{purpose}")


class Writer:
    """Appends records; used by one rank, from any of its threads."""

    def __init__(self, fd: int) -> None:
        self.lock = threading.RLock()
        self._fd = fd
        self._at = 0
        self._full = False  # no later record shall find room: it may speak of what is missing

    def append(self, *record: Any) -> None:
        """Write one record of marshallable values."""
        with self.lock:
            if self._full:
                return
            body = marshal.dumps(record)
            if self._at + len(body) > MOST:
                self._full, body = True, marshal.dumps(_FULL)
            self._at += os.pwrite(self._fd, _LENGTH.pack(len(body)) + body, self._at)


class Reader:
    """Reads what has been written since the last look."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = 0
        self.full = False  # what came after its end is lost

    def read(self) -> Iterator[tuple]:
        """The records that are new."""
        body = os.pread(self._fd, os.fstat(self._fd).st_size - self._at, self._at)
        at = 0
        while at + _LENGTH.size <= len(body):
            start = at + _LENGTH.size
            end = start + _LENGTH.unpack_from(body, at)[0]
            if end > len(body):
                break
            record = marshal.loads(body[start:end])
            self._at += end - at
            at = end
            if record == _FULL:
                self.full = True
            else:
                yield record
