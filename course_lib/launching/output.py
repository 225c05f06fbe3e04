"""What the ranks print: rank 0 as it happens, the others after it, in rank order.

Each line carries the number of its rank, ``[2] …``. So two runs that print the same show the same
bytes, whatever the order in which the ranks ran. Of ten megabytes the beginning is shown, with a
line that says how much was left out.
"""

from __future__ import annotations

import os
import re

MOST = 100_000  # bytes shown of one rank
_BLOCK = 1 << 16
# "[W1120 18:50:23.123456789 ProcessGroupGloo.cpp:12] …": the time would differ in every run
_STAMP = re.compile(rb"\[([IWEFC])\d{4} \d\d:\d\d:\d\d\.\d+ (?:\d+ )?")

_DYING = "terminate called after throwing"  # what C++ says before it ends the process


class RankOutput:
    """One rank's pipe, read without ever blocking."""

    def __init__(self, rank: int, fd: int) -> None:
        self.rank, self.fd = rank, fd
        self.text = ""  # complete lines, each with its [rank]
        self.terminated_with = ""  # what C++ said when it ended the process
        self.ended = False  # whether no process can print into it any more
        self._rest = b""
        self._kept = self._total = 0
        os.set_blocking(fd, False)

    def read(self) -> str:
        """Take what there is; returns the lines that became complete."""
        new = ""
        while True:
            try:
                block = os.read(self.fd, _BLOCK)
            except BlockingIOError:
                return new
            if not block:
                self.ended = True
                return new
            self._total += len(block)
            block = block[: max(0, MOST - self._kept)]
            self._kept += len(block)
            *lines, self._rest = (self._rest + block).split(b"\n")
            new += self._add(lines)

    def finish(self) -> str:
        """The last line, if it had no end, and the notice, if something was left out."""
        new = self._add([self._rest] if self._rest else [])
        self._rest = b""
        if self._total > self._kept:
            new += self._add([f"… {MOST:,} of {self._total:,} bytes shown".encode()])
            self._total = self._kept
        return new

    def _add(self, lines: list[bytes]) -> str:
        """Keep these lines; returns what is to be shown, without what C++ says at its end."""
        text = ""
        for raw in lines:
            line = _STAMP.sub(rb"[\1 ", raw).decode("utf-8", "backslashreplace")
            if self.terminated_with or line.startswith(_DYING):
                self.terminated_with += f"{line}\n"
            else:
                text += f"[{self.rank}] {line}\n"
        self.text += text
        return text
