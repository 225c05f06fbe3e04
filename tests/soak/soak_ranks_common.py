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
import psutil
import pytest
import torch
from processes import listening, marked, open_files

from course_lib.launching.plan import Deadline
from course_lib.launching.standby import standby

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
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    REPORTS.mkdir(parents=True, exist_ok=True)
    path = REPORTS / f"{name}-{now:%Y-%m-%d-%H%M%S}.json"
    whole = {"date": now.isoformat(timespec="seconds"), **numbers, "machine": machine}
    path.write_text(json.dumps(whole, indent=2) + "\n")
    print(json.dumps(numbers, indent=2))


def median(values: list[float]) -> float:
    return round(sorted(values)[len(values) // 2], 3) if values else 0.0


@contextmanager
def busy() -> Iterator[None]:
    """Keep every core busy meanwhile."""
    command = [sys.executable, "-c", "while True: sum(range(10_000))"]
    burning = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)]
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
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, folder)
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)  # it is remembered otherwise
        start_afresh()  # the fork server of before bears no mark
        try:
            yield Leftovers(Path(folder))
        finally:
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
        self.memory = set(os.listdir("/dev/shm"))
        self.files = 0
        self.warm()

    def warm(self) -> None:
        """Count open files from here on: the first runs open some for good (torch's, the fork
        server's socket).
        """
        self.files = open_files() - self._files_of_worlds()

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
        ours = {*marked(MARK, self.folder)}
        ready = {rank.pid for rank in standby.ready.ranks} if standby.ready is not None else set()
        server = standby._server and standby._server._process.pid
        # ranks that stand by listen, too: that is how gloo's pairs find one another
        ports = [port for pid in {os.getpid(), *ours} - ready for port in _ports(pid)]
        memory = set(os.listdir("/dev/shm")) - self.memory
        files = open_files() - self._files_of_worlds() - self.files
        return [
            *(f"process {pid}" for pid in ours - ready - {server}),
            *(f"listening port {port}" for port in ports),
            *(f"file {path}" for path in self.folder.iterdir() if not _is_torchs(path)),
            *(f"shared memory {name}" for name in memory),
            *([f"{files} open files too many"] if files > 0 else []),
        ]

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


def _ports(pid: int) -> list[int]:
    try:
        return listening(pid)
    except psutil.Error:
        return []  # gone meanwhile
