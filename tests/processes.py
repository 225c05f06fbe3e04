"""What the tests about processes share: who is alive, who is gone, who has started."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil


def alive(pid: int) -> bool:
    """Whether a process runs: one that is dead and not yet reaped does not."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def wait_for(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What this says once it says anything, or at the end of the time."""
    end = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.002)
    return found


def gone(pids, seconds=5.0):
    """Wait for these processes to end; returns those that did not."""
    wait_for(lambda: not any(map(alive, pids)), seconds)
    return [pid for pid in pids if alive(pid)]


def started(path, lines=2):
    """The process ids in this file, once it has so many lines."""
    text = wait_for(
        lambda: path.exists() and len(t := path.read_text().splitlines()) == lines and t
    )
    assert text, "the ranks did not start"
    return sorted({int(pid) for line in text for pid in line.split()})


def first_child(pid):
    """Wait for the fork server that a notebook starts, or a rank that a fork server starts."""

    def look() -> int:
        for child in psutil.Process(pid).children():
            try:  # what an import starts is gone at once
                ours = any("launching/forkserver" in word for word in child.cmdline())
                if ours and os.getsid(child.pid) == child.pid:
                    return child.pid
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        return 0

    found = wait_for(look)
    assert found, "it has started nothing"
    return found


def marked(name: str, value: object) -> list[int]:
    """The processes that run with this value of a variable in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # gone meanwhile, or another user's
            if process.environ().get(name) == str(value) and alive(process.pid):
                found.append(process.pid)
    return found


def open_files():
    return psutil.Process().num_fds()


def listening(pid: int) -> list[int]:
    """The ports on which a process listens."""
    found = psutil.Process(pid).net_connections("tcp")
    return [one.laddr.port for one in found if one.status == psutil.CONN_LISTEN]
