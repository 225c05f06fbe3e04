"""A rank's diary: a file that outlives the rank.

A record is its length and a marshalled tuple, whose first word says of which kind it is. The rank
appends records. A reader leaves a last record that is not complete for its next look. The file of a
rank of ``run`` has no name: it is gone when the last process that has it open is gone.

    Writer(fd).append("span", "forward", 0.5, 0.75)
    for kind, *fields in Reader(fd).read(): …

``RankState.READERS`` lists the kinds. Each has the fields that the parameters of its method name.

# Note [An issued record]
The record of a call, "issued", has the fields of an Event from ``op`` on, in their order; it may
leave out the last ones. Its ``line`` is the number of a "line" record. The recorder writes this
tuple by position, in ``Recorder.write_call``: to name the fields there would take as long as all
else that is done for a call. Every reader names them, by ``CALL_FIELDS`` or ``place_of``. A new
field of Event goes to its end; test_log.py says which field stands in another's place.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import struct
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from course_lib.trace import Event

# Of an "issued" record, after its kind: see Note [An issued record].
CALL_FIELDS = tuple(field.name for field in fields(Event))[1:]
_LENGTH = struct.Struct("<I")
_FORMAT = 2  # of marshal: later ones look for values that occur twice, which takes twice as long


def place_of(field: str) -> int:
    """Where in an "issued" record this field of an Event stands."""
    return 1 + CALL_FIELDS.index(field)


def nameless_file(purpose: str) -> int:
    """A file descriptor of an empty file in memory that has no name; ``purpose`` is for /proc."""
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
        """The records that are new; one that is not complete yet comes with the next call."""
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
