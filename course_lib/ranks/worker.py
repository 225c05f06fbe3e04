"""What happens inside a rank's process.

start: own session, output into a pipe, a thread that watches for the notebook's death
  │
Setup ──► environment, seeds, process group ──► ("ready",)
  │
Job ──► the reader's function ──► ("returned", …) or ("raised", …) or ("left", …)
  │
then it stays until it is killed, because a rank that exits early can cut off
a message that another rank has not read yet
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import os
import queue
import re
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from course_lib import context, user_code
from course_lib.pickling import CannotTravel, TooLarge, pack, unpack, unpack_call, why
from course_lib.ranks import recorder, scratch, wire
from course_lib.ranks.job import Plan
from course_lib.ranks.log import nameless_file
from course_lib.trace import Line

# What ranks may share. The compiler starts processes of its own when it is imported.
_SHARED = re.compile(r"(torch|torchvision)\.(?!_inductor|_C)")
GROUP_TIMEOUT = timedelta(days=7)
LARGEST_RESULT = 1 << 28  # bytes


@dataclass(frozen=True)
class Setup:
    """Who a rank is, and the world that it lives in."""

    rank: int
    plan: Plan
    environ: dict[str, str]
    idle: float  # seconds after which a rank that was given no job leaves

    @property
    def device(self) -> str:
        return f"cuda:{self.rank}" if self.plan.backend == "nccl" else "cpu"


@dataclass(frozen=True)
class Job:
    """What it shall do. ``parcel`` is what ``pack_call`` made of the function and its arguments."""

    parcel: bytes
    t0: float  # time.perf_counter() that counts as zero
    cwd: str
    path: list[str]
    record: bool
    cells: dict[str, str] = field(default_factory=dict)  # file name → "cell [7]"
    sources: dict[str, list[str]] = field(default_factory=dict)  # file name → its lines


class RankContext:
    """What this rank answers when the reader's code asks for its device or marks a span."""

    def __init__(self, device: str, t0: float, log: recorder.Recorder | None) -> None:
        self.device = torch.device(device)
        self._t0, self._log = t0, log

    def now(self) -> float:
        return time.perf_counter() - self._t0

    def add_span(self, name: str, start: float, end: float) -> None:
        if self._log is not None:
            self._log.span(name, start, end)

    def compute(self, seconds: float) -> None:
        time.sleep(seconds)


def main(fds: Sequence[int]) -> NoReturn:
    """The life of a rank, on the files that the notebook has opened for it."""
    control_fd, output_fd, log_fd, stack_fd, store_fd, imports_fd = fds
    inherited = set(sys.modules)
    os.setsid()  # own session and group: killed as one, and deaf to the terminal's Ctrl-C
    scratch.keep_in(scratch.folder(os.getpid()))
    _empty_main()
    _redirect(output_fd)
    faulthandler.enable(file=stack_fd)
    faulthandler.register(signal.SIGUSR1, file=stack_fd)
    control = socket.socket(fileno=control_fd)
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(control, orders), daemon=True).start()
    setup: Setup = orders.get()
    try:
        _set_up(setup, store_fd)
        log = recorder.Recorder(log_fd)
    except Exception as error:
        wire.send(control, _refused(f"{type(error).__name__}: {error}"))
        _stay(orders)
    wire.send(control, ("ready", {}))
    try:
        job: Job = orders.get(timeout=setup.idle)
    except queue.Empty:
        os._exit(0)  # nobody wants this world
    answer = _work(setup, job, log)
    _tell_imports(imports_fd, inherited)
    wire.send(control, answer)
    _stay(orders)


def _stay(orders: queue.SimpleQueue[Any]) -> NoReturn:
    while True:
        orders.get()


def _listen(control: socket.socket, orders: queue.SimpleQueue[Any]) -> None:
    """Hand on what the notebook says; when it is gone, so are we and our children."""
    try:
        while True:
            orders.put(wire.receive(control))
    except (EOFError, ConnectionResetError):
        os.killpg(0, signal.SIGKILL)


def _empty_main() -> None:
    """Functions and classes from cells live in ``__main__``: give them one with nothing in it."""
    sys.modules["course_lib.ranks.__main__"] = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")


def _redirect(output_fd: int) -> None:
    """Print into the notebook's pipe, standard error too; read from nowhere."""
    sys.stdin = open(os.devnull)  # noqa: SIM115 - it stays open for the life of the rank
    os.dup2(sys.stdin.fileno(), 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    os.close(output_fd)
    sys.stdout = sys.__stdout__ = _line_by_line(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _line_by_line(2)  # type: ignore[misc]


def _line_by_line(fd: int) -> io.TextIOWrapper:
    raw = os.fdopen(fd, "wb", closefd=False)
    return io.TextIOWrapper(raw, "utf-8", errors="backslashreplace", line_buffering=True)


def _set_up(setup: Setup, store_fd: int) -> None:
    os.environ.clear()
    os.environ.update(setup.environ)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if setup.device != "cpu":
        torch.cuda.set_device(setup.device)
    if setup.plan.init:
        dist.init_process_group(
            setup.plan.backend,
            store=dist.FileStore(f"/proc/self/fd/{store_fd}", setup.plan.world_size),
            rank=setup.rank,
            world_size=setup.plan.world_size,
            timeout=GROUP_TIMEOUT,  # the notebook keeps the time
            device_id=None if setup.device == "cpu" else torch.device(setup.device),
        )
        _rehearse(setup.device)
    context.seed_rank(setup.rank)


def _rehearse(device: str) -> None:
    """Do once what a job does. The first time takes longest: of a connection, and of every page
    of memory that a fork shares until it is touched.
    """
    function, args = unpack(pack((dist.all_reduce, (torch.zeros(1, device=device),))))
    file = nameless_file("rehearsal")
    log = recorder.Recorder(file)
    recorder.begin(log, 0.0)
    function(*args)
    recorder.stop()
    log.leave()
    os.close(file)


def _work(setup: Setup, job: Job, log: recorder.Recorder) -> tuple:
    os.chdir(job.cwd)
    sys.path[:] = job.path
    user_code.name_cells(job.cells)
    for name, lines in job.sources.items():
        user_code.show_lines(name, "".join(lines))
    if job.record:
        recorder.begin(log, job.t0)
    context.install(RankContext(setup.device, job.t0, log if job.record else None))
    answer: tuple
    try:
        function, *args = unpack_call(job.parcel)
        start = time.perf_counter()
        result = function(*args)
        log.settle()
        answer = _answer(start, result)
    except CannotTravel as error:
        answer = _refused(
            f"could not unpickle {error.name} ({error.why}): "
            "pass plain data, and create such objects inside the function"
        )
    except SystemExit as error:
        answer = "left", {"at": time.perf_counter(), "code": _code(error), "lines": _lines(error)}
    except BaseException as error:
        answer = _raised(error)
    if setup.device != "cpu" and dist.is_initialized() and answer[0] == "returned":
        torch.cuda.synchronize()
        dist.destroy_process_group()
    _flush()
    return answer


def _tell_imports(fd: int, inherited: Set[str]) -> None:
    """Name the parts of torch that this rank had to import to the fork server."""
    parts = [name for name in list(sys.modules) if name not in inherited and _SHARED.match(name)]
    if parts:
        with contextlib.suppress(OSError), socket.socket(fileno=fd) as server:
            server.send(" ".join(parts).encode(), socket.MSG_DONTWAIT)  # if not, another rank will


def _answer(start: float, result: object) -> tuple:
    """What to send for a result, which may be too large to travel, or unable to."""
    at, kind = time.perf_counter(), type(result).__name__
    try:
        parcel = pack(result, LARGEST_RESULT)
        return "returned", {"at": at, "start": start, "kind": kind, "parcel": parcel}
    except TooLarge as error:
        return _refused(f"returned {error}: return a summary of it (a shape, a norm, a slice)")
    except Exception as error:
        return _refused(f"returned a {kind}, which cannot travel ({why(error)}): return plain data")


def _refused(message: str) -> tuple:
    """What to send where the message says it all."""
    return "raised", {"at": time.perf_counter(), "message": message}


def _code(error: SystemExit) -> int:
    return error.code if isinstance(error.code, int) else int(error.code is not None)


def _raised(error: BaseException) -> tuple:
    """What to send for an exception, whatever it is made of."""
    try:
        parcel = pack(error, 1 << 20) if type(error).__module__ == "builtins" else b""
    except Exception:
        parcel = b""  # the words say as much
    return "raised", {"at": time.perf_counter(), "kind": type(error).__name__,
                      "message": str(error), "lines": _lines(error), "parcel": parcel}  # fmt: skip


def _lines(error: BaseException) -> list[Line]:
    return user_code.stack_lines(error.__traceback__)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.CDLL(None).fflush(None)  # what C++ has printed
