"""What the soak tests of ranks share: how often, where reports go, and what a world may leave."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cloudpickle
import torch
from processes import alive

from course_lib.ranks.plan import Deadline
from course_lib.ranks.standby import standby

REPORTS = Path(__file__).resolve().parents[2] / "build" / "soak"
MARK = "COURSE_LIB_SOAK"  # in the environment of every process that a run here starts
SECONDS = 1.0  # in which everything has to be gone


def by_value(module: str) -> None:
    """Have this module's functions travel to the ranks as those of a notebook do, so that no rank
    imports the module, and pytest with it.
    """
    cloudpickle.register_pickle_by_value(sys.modules[module])


def count(default: int) -> int:
    """How many repetitions: COUNT in the environment, for a short version."""
    return int(os.environ.get("COUNT", "") or default)


def report(name: str, **numbers: Any) -> None:
    """Write what was measured to build/soak, under the time of day; print it, too."""
    now = datetime.now(UTC)
    machine = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg(),
               "python": platform.python_version(), "torch": torch.__version__}  # fmt: skip
    REPORTS.mkdir(parents=True, exist_ok=True)
    path = REPORTS / f"{name}-{now:%Y-%m-%d-%H%M%S}.json"
    whole = {"date": now.isoformat(timespec="seconds"), **numbers, "machine": machine}
    path.write_text(json.dumps(whole, indent=2) + "\n")
    print(json.dumps(numbers, indent=2))


def median(values: list[float]) -> float:
    return round(sorted(values)[len(values) // 2], 3) if values else 0.0


@contextmanager
def busy(processes: int | None = None) -> Iterator[None]:
    """Keep every core busy meanwhile."""
    number = len(os.sched_getaffinity(0)) if processes is None else processes
    code = "while True: sum(range(10_000))"
    burning = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(number)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


# ---- what is left -------------------------------------------------------------------------------


@contextmanager
def marked_world() -> Iterator[Leftovers]:
    """Runs inside start processes that can be told from everybody else's, in a temporary folder
    of their own.
    """
    with tempfile.TemporaryDirectory() as folder:
        before = {key: os.environ.get(key) for key in (MARK, "TMPDIR")}
        os.environ.update({MARK: folder, "TMPDIR": folder})
        tempfile.tempdir = None  # it is remembered otherwise
        start_afresh()  # the fork server of before bears no mark
        try:
            yield Leftovers(Path(folder))
        finally:
            for key, value in before.items():
                if value is None:
                    del os.environ[key]
                else:
                    os.environ[key] = value
            tempfile.tempdir = None
            start_afresh()


def start_afresh() -> None:
    """End the world that stands by, and the fork server."""
    if standby.ready is not None:
        standby.ready.end()
        standby.ready = None
    standby.drop_server()


class Leftovers:
    """What there is that was not there before, and that no world which stands by accounts for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"{MARK}={folder}".encode()
        self.memory = set(os.listdir("/dev/shm"))
        self.files = 0
        self.warm()

    def warm(self) -> None:
        """Count open files from here on: the first runs open some for good (torch's, the fork
        server's socket).
        """
        self.files = len(os.listdir("/proc/self/fd")) - self._files_of_worlds()

    def wait(self, seconds: float = SECONDS) -> tuple[float, list[str]]:
        """Wait until nothing is left: how long that took, and what is there at the end."""
        if standby.ready is not None:
            with suppress(Exception):  # one that cannot form is the next run's to tell
                standby.ready.wait_until_ready(Deadline(60))
        start = time.perf_counter()
        while (left := self.found()) and time.perf_counter() - start < seconds:
            time.sleep(0.005)
        return time.perf_counter() - start, left

    def found(self) -> list[str]:
        ours = self._processes()
        return [
            *(f"process {pid}: {_command(pid)}" for pid in ours - self._expected()),
            *(f"listening port {port}" for port in self._ports(ours)),
            *(f"file {path}" for path in self.folder.iterdir() if not _is_torchs(path)),
            *(f"shared memory {name}" for name in self._shared_memory()),
            *self._open_files(),
        ]

    def _processes(self) -> set[int]:
        """Those that live and bear our mark."""
        return {pid for pid in _pids() if self._is_marked(pid) and alive(pid)}

    def _is_marked(self, pid: int) -> bool:
        try:
            return self.mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False  # gone meanwhile, or another user's

    @staticmethod
    def _expected() -> set[int]:
        """The fork server, and the ranks of the world that stands by."""
        server = standby._server
        ready = standby.ready.ranks if standby.ready is not None else []
        return {rank.pid for rank in ready} | ({server._process.pid} if server else set())

    def _ports(self, ours: set[int]) -> list[int]:
        """On which we listen: this process, or what is left of ranks. Ranks that stand
        by do, which is how gloo's pairs find one another."""
        ready = standby.ready.ranks if standby.ready is not None else []
        watched = {os.getpid(), *ours} - {rank.pid for rank in ready}
        held = {link for pid in watched for link in _links(pid)}
        return [port for port, inode in _listening() if f"socket:[{inode}]" in held]

    def _shared_memory(self) -> list[str]:
        """New there, and held by nobody else who lives."""
        new = set(os.listdir("/dev/shm")) - self.memory
        return sorted(new - _held_by_others(new, self)) if new else []

    def _open_files(self) -> list[str]:
        extra = len(os.listdir("/proc/self/fd")) - self._files_of_worlds() - self.files
        return [f"{extra} open files too many"] if extra > 0 else []

    @staticmethod
    def _files_of_worlds() -> int:
        """Those of the fork server, its socket and its complaints; and those of the world that
        stands by: selector, socket, store and orders, and four per rank.
        """
        server = 2 if standby._server is not None else 0
        return server + (4 + 4 * len(standby.ready.ranks) if standby.ready is not None else 0)


def _is_torchs(path: Path) -> bool:
    """The folder that ``import torch._dynamo`` makes, as in every program that compiles; empty."""
    return path.name.startswith("torchinductor_") and not any(path.iterdir())


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()[:80]
    except OSError:
        return "(gone)"


def _links(pid: int) -> list[str]:
    links = []
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return links


def _listening() -> list[tuple[int, str]]:
    """(port, inode) of every TCP socket that listens."""
    rows = []
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A":
                    rows.append((int(words[1].rpartition(":")[2], 16), words[9]))
    return rows


def _held_by_others(names: set[str], leftovers: Leftovers) -> set[str]:
    held = set()
    for pid in _pids():
        if pid != os.getpid() and not leftovers._is_marked(pid):
            with suppress(OSError):
                text = Path(f"/proc/{pid}/maps").read_text() + " ".join(_links(pid))
                held |= {name for name in names if f"/dev/shm/{name}" in text}
    return held
