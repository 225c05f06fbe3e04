"""The folder of a job, into which every rank writes what it does.

    FOLDER/restart-0/rank-3.log      the rank's records, in the format of recording/log.py
                     rank-3.old      the part before: a log that is full begins a new part, and
                                     the last two are kept
                     rank-3.stack    where the rank stood when it was asked, or crashed

A log has the records of a recorder, and some of watch's own: ``process`` (who writes), ``ending``
(how the script ended), ``exit`` (how the process ended), and ``before`` (the calls that came before
this part).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from course_lib.diagnosis.matching import Key
from course_lib.recording.log import Reader, Writer, place_of

_OP, _PEER, _GROUP, _TAG = map(place_of, ("op", "peer", "group", "tag"))
_CLOCKS_APART = 60.0  # seconds, at most, between machines
_LOOK_SECONDS = 0.5  # between two looks for a log that does not exist yet
MOST = 8 << 20  # bytes of a part
# Records whose first field is the number of a call.
OF_A_CALL = "shares", "threads", "waiting", "ended", "waited", "gave_up", "refused", "overlaps"


def job_folder(named: str | None) -> Path:
    """The folder of this start of the job, the same for all ranks of an agent.

    If no folder was named, the agent's process number and start time make a name of its own.
    """
    agent = os.getppid()
    began = Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[19]
    usual = Path(tempfile.gettempdir(), f"course_lib-watch-{os.getuid()}-{agent}-{began}")
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Path(named or usual).absolute() / f"restart-{restart}"


def process_began() -> float:
    """The time at which this process was started."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def start_of(folder: Path) -> int:
    """The number of this start of the job: 0, or the number of the restart."""
    number = folder.name.removeprefix("restart-")
    return int(number) if number.isdecimal() else 0


class LogWriter(Writer):
    """Writes a rank's log, and begins a new part when one is full."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = folder / f"rank-{rank}.log"
        self._path.with_suffix(".old").unlink(missing_ok=True)  # left by an earlier job
        self._size = self._calls = 0
        self._kept: dict[tuple, tuple] = {}  # records that every part needs, in their last version
        self._counts: Counter[Key] = Counter()  # calls so far, as CallMatcher counts them
        self._rank = rank
        self._last: Key = ()
        self._pid = os.getpid()  # processes that the rank forks must not write
        super().__init__(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC))

    def append(self, *record: Any) -> None:
        """Write one record. If that fails, say so once, and write no more."""
        try:
            if os.getpid() == self._pid:
                self._append(record)
        except OSError as error:  # the disk is full, or the folder was removed
            self._pid = 0
            print(f"course_lib.watch records no more: {error}", file=sys.stderr)

    def _append(self, record: tuple) -> None:
        """Write a record, and remember what the next part of the log will have to begin with."""
        super().append(*record)
        if record[0] == "issued":
            self._size += 200  # about, with the records that follow about the same call
            self._count(record)
            if self._size > MOST:
                self._begin_part()
        elif record[0] in ("line", "group", "flag", "process"):
            self._kept[record[:2]] = record
        elif record[0] == "refused":
            self._counts[self._last] -= 1

    def _count(self, record: tuple) -> None:
        op, peer, group = record[_OP], record[_PEER], record[_GROUP]
        self._calls += 1
        ends = {"send": (self._rank, peer), "recv": (peer, self._rank)}.get(op)
        self._last = ("message", group, *ends, record[_TAG]) if ends else ("call", group)
        self._counts[self._last] += 1

    def _begin_part(self) -> None:
        """Begin a new part, under another name until it is complete; the part before is kept."""
        new = self._path.with_suffix(".new")
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        part = Writer(fd)
        part.append("before", self._calls, list(self._counts.items()))
        for record in self._kept.values():
            part.append(*record)
        self._path.rename(self._path.with_suffix(".old"))
        new.rename(self._path)
        os.dup2(fd, self._fd)
        os.close(fd)
        self._size = 0


def this_machine() -> str:
    """The name of the machine, and of the container, in which a process number is unique."""
    return f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"


def _began(process: tuple | None) -> float:
    """When the writer of this record began. The clock of another machine may be behind ours, so
    for that it is the latest time possible.
    """
    if process is None:
        return 0.0
    machine, *_, at = process
    return at if machine == this_machine() else at + _CLOCKS_APART


def append_exit(folder: Path, rank: int, code: int, asked_at: float | None) -> None:
    """Write down how a rank's process ended, and when it had been asked to end."""
    path = folder / f"rank-{rank}.log"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    Writer(fd).append("exit", code, time.time(), asked_at)
    os.close(fd)


class LogReader:
    """Reads what is new in a rank's log, from part to part."""

    def __init__(self, folder: Path, rank: int, since: float = 0.0) -> None:
        self._path, self._since = folder / f"rank-{rank}.log", since
        self._part: Reader | None = None
        self._next_look = 0.0
        self.before = 0  # the number of calls that came before the first part that is left
        self.counts: dict[Key, int] = {}  # these calls, as CallMatcher counts them

    def open(self) -> None:
        """Open the oldest part, if there is one yet, unless an earlier job has left it."""
        for path in (self._path.with_suffix(".old"), self._path):
            if self._part is None and path.exists():
                part = Reader(os.open(path, os.O_RDONLY))
                head = {record[0]: record[1:] for record in islice(Reader(part.fd).read(), 1000)}
                if _began(head.get("process")) < self._since:
                    os.close(part.fd)
                else:
                    self._part = part
                    self.before, counts = head.get("before", (0, ()))
                    self.counts = dict(counts)

    def read(self) -> Iterator[tuple]:
        """The new records."""
        if self._part is None and time.monotonic() > self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self.open()
        while self._part is not None:
            is_replaced = self._is_replaced(self._part.fd)
            yield from self._part.read()
            if not is_replaced:
                return
            os.close(self._part.fd)
            self._part = Reader(os.open(self._path, os.O_RDONLY))

    def _is_replaced(self, fd: int) -> bool:
        """Whether another part has taken the place of this one."""
        try:
            return not os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:  # the writer is between its two renames
            return False
