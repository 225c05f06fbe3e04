"""What the tests about processes share: who is alive, who is gone, who has started."""

import os
import time
from contextlib import suppress
from pathlib import Path


def alive(pid):
    """Whether a process runs: one that is dead and not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids, seconds=5.0):
    """Wait for these processes to end; returns those that did not."""
    deadline = time.monotonic() + seconds
    while (left := [p for p in pids if alive(p)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def started(path, lines=2, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and len(text := path.read_text().splitlines()) == lines:
            return sorted({int(pid) for line in text for pid in line.split()})
        time.sleep(0.02)
    raise AssertionError("the ranks did not start")


def first_child(pid, seconds=60):
    """Wait for the fork server that a notebook starts, or a rank that a fork server starts."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(OSError):  # what an import starts is gone at once
                words = Path(f"/proc/{child}/cmdline").read_text()
                if "ranks/forkserver" in words and os.getsid(int(child)) == int(child):
                    return int(child)
        time.sleep(0.001)
    raise AssertionError("it has started nothing")


def open_files():
    return len(os.listdir("/proc/self/fd"))
