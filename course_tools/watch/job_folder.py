"""The folder of a job, in which every rank writes down what it does.

    FOLDER/restart-0/rank-3.log      its records, as recording/log.py has them
                     rank-3.old      those before, where there are too many: two parts are kept
                     rank-3.stack    where it stood when it was asked, or crashed

Besides a recorder's own there are records of who writes (``process``), of how that process ended
(``exit``), and of what a part that is not the first has no records of (``before``).
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
_LOOK_SECONDS = 0.5  # between two looks for a log that is not there
MOST = 8 << 20  # bytes of a part
OF_A_CALL = "shares", "threads", "waiting", "ended", "taken", "gave_up", "refused", "overlaps"


def job_folder(named: str | None) -> Path:
    """The folder of this start of a job, the same for all ranks of an agent. One that nobody has
    named is the agent's own: its process, and when that was started.
    """
    agent = os.getppid()
    began = Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[19]
    usual = Path(tempfile.gettempdir(), f"course_lib-watch-{os.getuid()}-{agent}-{began}")
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Path(named or usual).absolute() / f"restart-{restart}"


def process_began() -> float:
    """When this process was started."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def start_of(folder: Path) -> int:
    """Which start of the job this is: 0, or which restart."""
    number = folder.name.removeprefix("restart-")
    return int(number) if number.isdecimal() else 0


class LogWriter(Writer):
    """A rank's log, which begins a new part when one is full."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = folder / f"rank-{rank}.log"
        self._path.with_suffix(".old").unlink(missing_ok=True)  # of a job that was here before
        self._size = self._calls = 0
        self._kept: dict[tuple, tuple] = {}  # what every part needs, as it was said last
        self._counts: Counter[Key] = Counter()  # of calls
        self._rank = rank
        self._last: Key = ()
        self._pid = os.getpid()  # a rank's own children are not the rank
        super().__init__(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC))

    def append(self, *record: Any) -> None:
        try:
            if os.getpid() == self._pid:
                self._append(record)
        except OSError as error:  # the disk is full, or the folder was removed
            self._pid = 0
            print(f"course_lib.watch records no more: {error}", file=sys.stderr)

    def _append(self, record: tuple) -> None:
        super().append(*record)
        if record[0] == "issued":
            self._size += 200  # or so, with what is to be said of it later
            self._count(record)
            if self._size > MOST:
                self._turn()
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

    def _turn(self) -> None:
        """Begin a new part, complete before anybody sees it; the one before the last is gone."""
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
    """Where a process's number means the same process."""
    return f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"


def _began(process: tuple | None) -> float:
    """When the writer of this record began, on this machine's clock or later: those of others may
    differ from it by so much.
    """
    if process is None:
        return 0.0
    machine, *_, at = process
    return at if machine == this_machine() else at + _CLOCKS_APART


def append_exit(folder: Path, rank: int, code: int, asked_at: float | None) -> None:
    """Write down how a rank's process ended, and since when it had been asked to."""
    path = folder / f"rank-{rank}.log"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    Writer(fd).append("exit", code, time.time(), asked_at)
    os.close(fd)


class LogReader:
    """Reads a rank's log on, through its parts."""

    def __init__(self, folder: Path, rank: int, since: float = 0.0) -> None:
        self._path, self._since = folder / f"rank-{rank}.log", since
        self._part: Reader | None = None
        self._next_look = 0.0
        self.before = 0  # so many calls came before what is to be had
        self.counts: dict[Key, int] = {}  # of those

    def open(self) -> None:
        """Open the first part, if there is one yet, and it is not of a job that was here before."""
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
        """The records that are new."""
        if self._part is None and time.monotonic() > self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self.open()
        while self._part is not None:
            turned = self._is_turned(self._part.fd)
            yield from self._part.read()
            if not turned:
                return
            os.close(self._part.fd)
            self._part = Reader(os.open(self._path, os.O_RDONLY))

    def _is_turned(self, fd: int) -> bool:
        """Whether another part has taken this one's place."""
        try:
            return not os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:  # it is just being put there
            return False
