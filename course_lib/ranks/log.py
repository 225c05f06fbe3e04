"""A rank's diary: a memory-mapped file that outlives the rank.

    0        8        16                                    end
    ┌────────┬────────┬────────┬──────────┬────────┬────────┬───────┐
    │  end   │  full  │ length │  record  │ length │ record │  …    │
    └────────┴────────┴────────┴──────────┴────────┴────────┴───────┘

The rank appends records (marshalled tuples) and moves ``end`` last, so a reader in another
process always finds whole records, whatever has become of the writer; ``full`` says that there
was no room for more. The file has no name:
it is gone when the last process that knows it is. Its space is claimed before it is used,
because running out of it later would be a SIGBUS.
"""

from __future__ import annotations

import marshal
import mmap
import os
import struct
import tempfile
import threading
from typing import Any

_HEAD = struct.Struct("<QQ")
_END = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")
FIRST = 1 << 18  # bytes claimed at first
MOST = 1 << 28  # bytes after which recording stops


def nameless_file(purpose: str) -> int:
    """A file descriptor of an empty file that has no name (in memory where the system can)."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"course_lib-{purpose}")
    with tempfile.TemporaryFile(prefix=f"course_lib-{purpose}-") as file:
        return os.dup(file.fileno())


def _claim(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    else:
        os.ftruncate(fd, size)


class Writer:
    """Appends records; used by one rank, from any of its threads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._size, self._at = FIRST, _HEAD.size
        _claim(fd, FIRST)
        self._map = mmap.mmap(fd, FIRST)
        _END.pack_into(self._map, 0, self._at)
        self._full = False

    def append(self, record: tuple) -> None:
        """Write one record of marshallable values."""
        body = marshal.dumps(record)
        with self._lock:
            end = self._at + _LENGTH.size + len(body)
            if self._full or (end > self._size and not self._grow(end)):
                return
            self._map[self._at : end] = _LENGTH.pack(len(body)) + body
            self._at = end
            _END.pack_into(self._map, 0, end)

    def _grow(self, needed: int) -> bool:
        size = max(2 * self._size, needed)
        if size > MOST:
            return self._refuse()
        try:
            _claim(self._fd, size)
        except OSError:
            return self._refuse()
        self._map.close()
        self._map = mmap.mmap(self._fd, size)
        self._size = size
        return True

    def _refuse(self) -> bool:
        self._full = True
        _HEAD.pack_into(self._map, 0, self._at, 1)
        return False


class Reader:
    """Reads what has been written since the last look."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = _HEAD.size
        self.full = False  # what came after its end is lost

    def read(self) -> list[Any]:
        head = os.pread(self._fd, _HEAD.size, 0)
        if len(head) < _HEAD.size:
            return []
        end, full = _HEAD.unpack(head)
        self.full = bool(full)
        if end <= self._at:  # nothing new; 0 where the file is claimed and its head not yet written
            return []
        body = os.pread(self._fd, end - self._at, self._at)
        records, at = [], 0
        while at < len(body):
            (length,) = _LENGTH.unpack_from(body, at)
            at += _LENGTH.size
            records.append(marshal.loads(body[at : at + length]))
            at += length
        self._at = end
        return records
