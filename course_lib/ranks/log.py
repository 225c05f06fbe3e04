"""A rank's diary: a memory-mapped file that outlives the rank.

    0        8        16                                    end
    ┌────────┬────────┬────────┬──────────┬────────┬────────┬───────┐
    │  end   │  full  │ length │  record  │ length │ record │  …    │
    └────────┴────────┴────────┴──────────┴────────┴────────┴───────┘

The rank appends records and moves ``end`` last, so a reader in another process always finds
whole records, whatever has become of the writer; ``full`` says that there was no room for more.
A record is a marshalled tuple, or one of the two that there are most of, which are packed. The file
has no name: it is gone when the last process that knows it is. Its space is claimed before it is
used, because running out of it later would be a SIGBUS.
"""

from __future__ import annotations

import marshal
import mmap
import os
import struct
import threading
from typing import Any

_HEAD = struct.Struct("<QQ")
_END = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")
ISSUED = struct.Struct("<IcIId")  # length, b"E", number of the event, of its kind, time
DONE = struct.Struct("<IcIdi?")  # length, b"C", number of the event, time or NaN, peer, waited for
_PACKED = {b"E"[0]: ISSUED, b"C"[0]: DONE}  # no marshalled tuple begins with these
FIRST = 1 << 18  # bytes claimed at first
MOST = 1 << 28  # bytes after which recording stops


def nameless_file(purpose: str) -> int:
    """A file descriptor of an empty file in memory that has no name."""
    return os.memfd_create(f"course_lib-{purpose}")


class Writer:
    """Appends records; used by one rank, from any of its threads."""

    def __init__(self, fd: int) -> None:
        self.lock = threading.RLock()
        self._fd = fd
        self._size, self._at = FIRST, _HEAD.size
        os.posix_fallocate(fd, 0, FIRST)
        self._map = mmap.mmap(fd, FIRST)
        _END.pack_into(self._map, 0, self._at)

    def append(self, record: tuple) -> None:
        """Write one record of marshallable values."""
        body = marshal.dumps(record)
        with self.lock:
            end = self._at + _LENGTH.size + len(body)
            if end <= self._size or self._grow(end):
                self._map[self._at : end] = _LENGTH.pack(len(body)) + body
                self._at = end
                _END.pack_into(self._map, 0, end)

    def put(self, layout: struct.Struct, letter: bytes, *values: Any) -> None:
        """Write one packed record; the caller holds the ``lock``."""
        end = self._at + layout.size
        if end <= self._size or self._grow(end):
            layout.pack_into(self._map, self._at, layout.size - _LENGTH.size, letter, *values)
            self._at = end
            _END.pack_into(self._map, 0, end)

    def _grow(self, needed: int) -> bool:
        size = max(2 * self._size, needed)
        if size > MOST or not self._size:
            return self._refuse()
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError:
            return self._refuse()
        self._map.close()
        self._map = mmap.mmap(self._fd, size)
        self._size = size
        return True

    def _refuse(self) -> bool:
        self._size = 0  # no later record shall find room: it may speak of what is missing
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
        last, full = _HEAD.unpack(head)
        self.full = bool(full)
        if last <= self._at:  # nothing new; 0 where the file is claimed, its head not yet written
            return []
        body = os.pread(self._fd, last - self._at, self._at)
        records, at = [], 0
        while at < len(body):
            (length,) = _LENGTH.unpack_from(body, at)
            start, end = at + _LENGTH.size, at + _LENGTH.size + length
            if layout := _PACKED.get(body[start]):
                _, letter, *values = layout.unpack_from(body, at)
                records.append((letter.decode(), *values))
            else:
                records.append(marshal.loads(body[start:end]))
            at = end
        self._at = last
        return records
