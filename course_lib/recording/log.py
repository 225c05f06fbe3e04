"""A rank's diary: a file that outlives the rank.

A record is its length and a marshalled tuple, whose first word says what it is. The rank appends,
and whoever reads leaves a last one that is not complete for the next time. The file has no name: it
is gone when the last process that knows it is.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import struct
from collections.abc import Iterator
from typing import Any

_LENGTH = struct.Struct("<I")
_FORMAT = 2  # of marshal: later ones look for values that occur twice, which takes twice as long


def nameless_file(purpose: str) -> int:
    """A file descriptor of an empty file in memory that has no name: for logs, and for others."""
    return os.memfd_create(f"course_lib-{purpose}")


class Writer:
    """Appends records; used by one rank, from any of its threads."""

    def __init__(self, fd: int) -> None:
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        self._fd = fd

    def append(self, *record: Any) -> None:
        """Write one record of marshallable values."""
        body = marshal.dumps(record, _FORMAT)
        os.write(self._fd, _LENGTH.pack(len(body)) + body)


class Reader:
    """Reads what has been written since the last look."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._at = 0

    def read(self) -> Iterator[tuple]:
        """The records that are new."""
        body = os.pread(self.fd, max(0, os.fstat(self.fd).st_size - self._at), self._at)
        at = 0
        while at + _LENGTH.size <= len(body):
            start = at + _LENGTH.size
            end = start + _LENGTH.unpack_from(body, at)[0]
            if end > len(body):
                break
            self._at += end - at
            at = end
            yield marshal.loads(body[start:end])
