"""Starts a rank's process in milliseconds: torch is imported once, before any student's code.

    judge ──socket──► zygote ──fork──► keeper ──fork──► rank
      │                                  │                │
      ├── lifeline ──────────────────────┘ ends the rank at end-of-file, or above its limits
      └── talk ───────────────────────────────────────────┘ plain data, see rank.py

One zygote serves all judges of a grading run. It and the keepers run no student's code.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from course_lib.grading import walls
from course_lib.grading.frames import Talk
from course_lib.grading.walls import Limits

VARIABLE = "COURSE_GRADE_ZYGOTE"  # where kernels find the zygote of their run
CHECKS = Path(__file__).resolve().parents[1] / "checks"
# Modules of what ranks are given. The lessons stay out of a rank's memory and of its files: the
# right function of an exercise would be an answer to it.
GIVEN = ("course_lib.checks.models", "course_lib.checks.watched")
_leave = os._exit  # the answer's own is patched
_WATCH = 0.05  # seconds between two looks at a rank


class Zygote:
    """The process that starts ranks, as long as the with-block lasts."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="grade-")
        self.address = os.path.join(self.folder, "door")
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> Zygote:
        root = Path(__file__).resolve().parents[2]
        path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
        here, there = socket.socketpair()
        with here, there:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, self.address, str(there.fileno())],
                env=_environment() | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[there.fileno()],
                start_new_session=True,
            )  # fmt: skip
            there.close()
            if not here.recv(1):
                raise RuntimeError("the process that starts ranks did not start")
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.close()  # it ends when nobody holds this any more
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(OSError):
            os.unlink(self.address)
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)


def _environment() -> dict[str, str]:
    """Of this process's environment what a Python needs: a rank can read its first one."""
    needed = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV",
              "COURSE_LIB_WALLS")  # fmt: skip
    return {name: value for name, value in os.environ.items() if name in needed}


def start_rank(address: str, limits: Limits) -> tuple[socket.socket, socket.socket]:
    """A new process behind walls: its lifeline, and the socket on which it talks."""
    life, far_life = socket.socketpair()
    talk, far_talk = socket.socketpair()
    with socket.socket(socket.AF_UNIX) as door, far_life, far_talk:
        door.connect(address)
        request = json.dumps(limits.as_json()).encode()
        socket.send_fds(door, [request], [far_life.fileno(), far_talk.fileno()])
    return life, talk


# ---- the zygote's own process ------------------------------------------------------------------


def hidden() -> list[str]:
    """What of this package no rank may read: the grading, and what is expected of answers."""
    own = [Path(__file__).resolve().parent, CHECKS / "__pycache__", CHECKS / "formulas.py"]
    return [str(p) for p in [*own, *CHECKS.glob("lesson_*.py")]]


def main(address: str, ready: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are not waited for
    _import_all()
    place = os.path.dirname(address)
    door = socket.socket(socket.AF_UNIX)
    door.bind(address)
    door.listen(64)
    os.write(ready, b".")
    os.close(ready)
    while True:
        readable, _, _ = select.select([door.fileno(), 0], [], [])
        if 0 in readable:  # the run is over
            break
        connection, _ = door.accept()
        with connection:
            _serve(connection, place)
    _remove(place)  # whoever has started this may have been killed
    _leave(0)  # at once: some libraries have much to say when they are taken down


def _import_all() -> None:
    import importlib

    import torch

    # the first optimizer imports the second of these, and what loads data the third
    for name in ("course_lib.grading.rank", "torch._dynamo", "torchvision.datasets", *GIVEN):
        importlib.import_module(name)
    torch.set_num_threads(1)
    import gc

    gc.collect()
    gc.freeze()


def _serve(connection: socket.socket, place: str) -> None:
    data, fds, _, _ = socket.recv_fds(connection, 4096, 2)
    try:
        if len(fds) == 2 and os.fork() == 0:
            code = 1
            try:
                code = keep(fds[0], fds[1], Limits(**json.loads(data)), place)
            finally:
                _leave(code)
    finally:
        for fd in fds:
            os.close(fd)


def keep(life_fd: int, talk_fd: int, limits: Limits, place: str) -> int:
    """In the keeper: build the outer walls, start the rank, watch it to its end."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _close_all_but(life_fd, talk_fd)
    private = tempfile.mkdtemp(prefix="rank-", dir=place)
    life = Talk(socket.socket(fileno=life_fd))
    outer = walls.separate()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(life.sock.detach())
            _be_rank(talk_fd, limits, outer, private)
            code = 0
        finally:
            _leave(code)
    os.close(talk_fd)
    try:
        life.send({"pid": pid})
        why, status = _watch(pid, life.sock, limits)
    finally:  # nothing that it has started outlives it: it was the first process of its own world
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(Exception):
        life.send({"why": why, "code": os.waitstatus_to_exitcode(status)})
    _remove(private)
    return 0


def _close_all_but(*keep: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    at = 3
    for fd in sorted(keep):
        os.closerange(at, fd)
        at = fd + 1
    os.closerange(at, os.sysconf("SC_OPEN_MAX"))


def _be_rank(talk_fd: int, limits: Limits, outer: set[str], private: str) -> None:
    from course_lib.grading import rank

    os.setsid()
    standing = walls.build(limits, outer, private, hidden())
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    rank.serve(socket.socket(fileno=talk_fd), standing)


def _watch(pid: int, life: socket.socket, limits: Limits) -> tuple[str, int]:
    """Wait until the rank ends, or is to be ended: why, and its status."""
    life.setblocking(False)
    before = 0
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return "ended", status
        if select.select([life], [], [], _WATCH)[0]:
            why = "no longer needed"
        elif sys.platform != "linux":
            continue
        else:
            before = before or walls.own_memory(pid)
            if walls.own_memory(pid, before) <= limits.memory_mb << 20:
                continue
            why = "memory"
        os.kill(pid, signal.SIGKILL)
        return why, os.waitpid(pid, 0)[1]


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def answer(life: socket.socket, seconds: float) -> dict[str, Any]:
    """What the keeper says next: which process it is, and of its end why. Empty if it says nothing
    within ``seconds``."""
    end = time.monotonic() + seconds
    try:
        return Talk(life, lambda: time.monotonic() < end).receive()
    except Exception:
        return {}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
