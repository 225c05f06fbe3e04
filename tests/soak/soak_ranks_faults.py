"""Faults of all kinds in a row: each told as what it is, and nothing left a second later.

COUNT=20 make soak SOAK_ARGS="-k faults"        a short version; 200 by default
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from soak_ranks_common import Leftovers, block_in_c, by_value, count, marked_world, median, report

from course_lib import CourseError, Deadlock, Hang, Hazard, Mismatch, RankDied, RankFailed, run
from course_lib.errors import Interrupted

by_value("soak_ranks_common")  # for block_in_c
by_value(__name__)


class Fault(NamedTuple):
    """What goes wrong, and what has to be said of it."""

    name: str
    kind: type[BaseException]
    fn: Callable
    world_size: int = 2
    options: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


def on(rank: int, action: Callable[[], Any]) -> Callable[[], None]:
    """One rank does something, all others meet in a barrier, before and after."""

    def both() -> None:
        dist.barrier()
        if dist.get_rank() == rank:
            action()
        dist.barrier()

    return both


def by_rank(first: Callable[[], Any], second: Callable[[], Any]) -> Callable[[], None]:
    return lambda: (first if dist.get_rank() == 0 else second)()


def reduce_of(n: int, dtype: torch.dtype = torch.float32, op: Any = dist.ReduceOp.SUM) -> Callable:
    return lambda: dist.all_reduce(torch.ones(n, dtype=dtype), op=op)


def send(n: int, to: int, tag: int = 0) -> Callable:
    return lambda: dist.send(torch.ones(n), to, tag=tag)


def recv(n: int, source: int, tag: int = 0) -> Callable:
    return lambda: dist.recv(torch.ones(n), source, tag=tag)


def spin() -> None:
    while True:
        pass


def kill_me(number: int) -> Callable:
    return lambda: os.kill(os.getpid(), number)


def children_then_raise() -> None:
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,)).start()
    dist.barrier()
    raise ValueError("stop")


def children_then_return() -> None:
    """The daemon's way: a child of a child, in its own session."""
    code = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    subprocess.Popen(["sleep", "1000"])


def deaf_child() -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)"
    subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    os._exit(4)


def loader_then_raise() -> None:
    from torch.utils.data import DataLoader

    for _ in DataLoader(list(range(64)), num_workers=2):
        raise ValueError("stop")


def shared_tensor_then_die() -> None:
    torch.ones(1000).share_memory_()
    os.kill(os.getpid(), signal.SIGKILL)


def temporary_file_then_die() -> None:
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 4096)
        os.kill(os.getpid(), signal.SIGKILL)


def shout_then_raise() -> None:
    for _ in range(1000):
        print("x" * 9999)
    raise ValueError("stop")


def by_hand(then: Callable[[], Any]) -> Callable[[], None]:
    def work() -> None:
        dist.init_process_group("gloo")
        then()

    return work


def one_comes() -> None:
    dist.init_process_group("gloo") if os.environ["RANK"] == "0" else time.sleep(1000)


def fail() -> None:
    raise ValueError("no such thing")


def forget() -> None:
    dist.isend(torch.ones(1), 1) if dist.get_rank() == 0 else dist.recv(torch.ones(1), 0)


def ring_of_recvs() -> None:
    dist.recv(torch.ones(1), (dist.get_rank() + 1) % dist.get_world_size())


def other_groups() -> None:
    one, two = dist.new_group([0, 1]), dist.new_group([0, 1])
    dist.all_reduce(torch.ones(1), group=one if dist.get_rank() == 0 else two)


SHORT = {"timeout": 1.0}
FAULTS = [
    Fault("exception on one rank", RankFailed, on(1, fail), 3),
    Fault("exception on every rank", RankFailed, fail, 4),
    Fault("exception before a collective", RankFailed, by_rank(fail, dist.barrier), 4),
    *(Fault(f"{signal.Signals(n).name}", RankDied, on(1, kill_me(n)), 2)
      for n in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM)),
    Fault("a real segmentation fault", RankDied, on(0, lambda: ctypes.string_at(0))),
    Fault("SIGKILL on every rank", RankDied, kill_me(signal.SIGKILL), 4),
    Fault("exit code 0", RankDied, on(0, lambda: os._exit(0))),
    Fault("exit code 3", RankDied, on(1, lambda: os._exit(3)), 3),
    Fault("sys.exit", RankDied, on(1, lambda: sys.exit(0))),
    Fault("a loop without end", Hang, on(0, spin), 2, SHORT),
    Fault("SIGSTOP", Hang, on(1, kill_me(signal.SIGSTOP)), 2, SHORT),
    Fault("blocked in compiled code", Hang, on(0, block_in_c), 2, SHORT),
    Fault("asleep", Hang, lambda: time.sleep(1000), 3, SHORT),
    Fault("recv against recv", Deadlock, by_rank(recv(1, 1), recv(1, 0))),
    Fault("send against send", Deadlock, by_rank(send(4, 1), send(4, 0))),
    Fault("a cycle of three", Deadlock, ring_of_recvs, 3),
    Fault("a peer that has returned", Deadlock, by_rank(recv(1, 1), lambda: None)),
    Fault("a member missing", Deadlock, by_rank(lambda: None, dist.barrier), 3),
    Fault("lengths", Mismatch, by_rank(reduce_of(1000), reduce_of(1001))),
    Fault("float32 and float64", Mismatch, by_rank(reduce_of(9), reduce_of(9, torch.float64))),
    Fault("float32 and int32", Mismatch, by_rank(reduce_of(9), reduce_of(9, torch.int32))),
    Fault("ops", Mismatch, by_rank(reduce_of(9), lambda: dist.broadcast(torch.ones(9), 0))),
    Fault("reduce ops", Mismatch, by_rank(reduce_of(9), reduce_of(9, op=dist.ReduceOp.MAX))),
    Fault("an inbox too small", Mismatch, by_rank(send(9, 1), recv(4, 0))),
    Fault("an inbox too large", Mismatch, by_rank(send(4, 1), recv(9, 0))),
    Fault("tags", Mismatch, by_rank(send(4, 1, 1), recv(4, 0, 2))),
    Fault("groups", Mismatch, other_groups),
    Fault("a stride", Mismatch, lambda: dist.all_reduce(torch.arange(8.0)[::2])),
    Fault("a Work that nobody waits for", Hazard, forget),
    Fault("children, then an exception", RankFailed, children_then_raise),
    Fault("children, then a hang", Hang, lambda: (children_then_return(), spin()), 2, SHORT),
    Fault("a child that is deaf to SIGTERM", RankDied, deaf_child),
    Fault("workers of a DataLoader", RankFailed, loader_then_raise),
    Fault("shared memory, then SIGKILL", RankDied, shared_tensor_then_die),
    Fault("a temporary file, then SIGKILL", RankDied, temporary_file_then_die),
    Fault("ten megabytes of output", RankFailed, shout_then_raise),
    Fault("init=False, exception", RankFailed, by_hand(fail), 2, {"init": False}),
    Fault("init=False, before the group", RankFailed, fail, 2, {"init": False}),
    Fault("init=False, SIGKILL", RankDied, by_hand(kill_me(9)), 2, {"init": False}),
    Fault("init=False, deadlock", Deadlock, by_hand(by_rank(recv(1, 1), recv(1, 0))), 2,
          {"init": False}),
    Fault("init=False, a rank that does not come", Hang,
          one_comes, 2, {"init": False, **SHORT}),
    Fault("a result that cannot travel", RankFailed, threading.Lock),
    Fault("a result too large", RankFailed, lambda: torch.empty(250_000_000), 1),
    Fault("no ranks", CourseError, fail, 0),
    Fault("too many ranks", CourseError, fail, 100_000),
    Fault("the fork server killed", CourseError,
          lambda: (os.kill(os.getppid(), signal.SIGKILL), time.sleep(1000))),
]  # fmt: skip


def interrupted(_seconds: float = 30.0) -> None:
    """An interrupt while ranks sit in a collective."""
    begun = threading.Event()

    class Signalling:
        """Standard output that says when a rank has printed."""

        def write(self, text: str) -> int:
            begun.set()
            return len(text)

        def flush(self) -> None:
            """Nothing is held back."""

    def interrupt() -> None:
        if begun.wait(_seconds):
            os.kill(os.getpid(), signal.SIGINT)

    thread, out = threading.Thread(target=interrupt), sys.stdout
    thread.start()
    sys.stdout = Signalling()  # type: ignore[assignment]
    try:
        run(by_rank(lambda: (print("here", flush=True), dist.barrier()), lambda: time.sleep(1000)))
    finally:
        sys.stdout = out
        thread.join()


def provoke(fault: Fault) -> BaseException | None:
    try:
        if fault.fn is interrupted:
            interrupted()
        else:
            run(fault.fn, world_size=fault.world_size, **fault.options)
    except (Exception, KeyboardInterrupt) as error:  # whatever it is, it is judged
        return error
    return None


def warm_up(leftovers: Leftovers) -> None:
    """One run of each kind that opens something for good when it is first called."""
    for init in (True, False):
        run(by_hand(lambda: None) if not init else lambda: None, world_size=2, init=init)
    run(lambda: None, world_size=2)
    leftovers.wait(5.0)
    leftovers.warm()
    assert leftovers.found() == []


def mixed(number: int, seed: int) -> list[Fault]:
    """Every kind as often as every other, in an order that no kind depends on."""
    all_kinds = [*FAULTS, Fault("interrupt", Interrupted, interrupted)]
    draw = random.Random(seed)
    chosen: list[Fault] = []
    while len(chosen) < number:
        chosen += draw.sample(all_kinds, len(all_kinds))
    return chosen[:number]


@pytest.mark.timeout(3600)
def test_faults_in_a_row_leave_nothing(monkeypatch):
    """200 faults: the right class each time, and within a second no process, port, file, shared
    memory or open file, with a world that stands by (which is then all that is there) and without.
    """
    wrong: list[str] = []
    cleared: list[float] = []
    told: list[float] = []
    kept: list[BaseException] = []  # as a notebook keeps the last error, with all its frames
    with marked_world() as leftovers:
        warm_up(leftovers)
        faults = mixed(count(200), seed=len(FAULTS))
        for number, fault in enumerate(faults):
            monkeypatch.setenv("COURSE_LIB_STANDBY", "0" if number // 10 % 2 else "60")
            start = time.perf_counter()
            error = provoke(fault)
            told.append(time.perf_counter() - start)
            if type(error) is not fault.kind:
                wrong.append(f"{number} {fault.name}: {type(error).__name__}: {error}")
            kept = [*kept[-4:], *filter(None, [error])]
            seconds, left = leftovers.wait()
            cleared.append(seconds)
            wrong += [f"{number} {fault.name}: {what}" for what in left]
        works = run(dist.get_rank, world_size=4).results == [0, 1, 2, 3]
    report("ranks_faults", faults=len(faults), kinds=len(Counter(f.name for f in faults)),
           wrong=wrong, told_in_median=median(told), told_in_most=round(max(told), 2),
           cleared_in_median=median(cleared), cleared_in_most=round(max(cleared), 3))  # fmt: skip
    assert wrong == []
    assert works


@pytest.mark.timeout(3600)
def test_launches_in_a_row_with_faults_between_them(monkeypatch):
    """100 launches: every second one works and has to, the others raise, are killed or time out."""
    between = [f for f in FAULTS if f.kind in (RankFailed, RankDied, Hang)]
    draw = random.Random(1)
    wrong: list[str] = []
    seconds: list[float] = []
    with marked_world() as leftovers:
        warm_up(leftovers)
        number = count(100)
        for at in range(number):
            if at % 2:
                fault = draw.choice(between)
                error = provoke(fault)
                if type(error) is not fault.kind:
                    wrong.append(f"{at} {fault.name}: {type(error).__name__}: {error}")
                del error
            else:
                start = time.perf_counter()
                if run(sum_of_ranks).results != [6.0] * 4:
                    wrong.append(f"{at}: a wrong sum")
                seconds.append(time.perf_counter() - start)
            wrong += [f"{at}: {what}" for what in leftovers.wait()[1]]
    report("ranks_launches", launches=number, wrong=wrong, right_ones_median=median(seconds),
           right_ones_most=round(max(seconds), 2))  # fmt: skip
    assert wrong == []


def sum_of_ranks() -> float:
    x = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(x)
    return x.item()


# ---- the judge can see --------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["process", "port", "file", "shared memory", "open files"])
def test_what_is_left_is_seen(what):
    """Each kind of leftover, left on purpose."""
    import socket
    import tempfile
    from multiprocessing.shared_memory import SharedMemory

    with marked_world() as leftovers:
        assert leftovers.found() == []
        if what == "process":
            thing: Any = subprocess.Popen(["sleep", "1000"])
            undo = lambda: (thing.kill(), thing.wait())  # noqa: E731
        elif what == "port":
            thing = socket.create_server(("127.0.0.1", 0))
            undo = thing.close
        elif what == "file":
            thing = tempfile.NamedTemporaryFile()  # noqa: SIM115
            undo = thing.close
        elif what == "shared memory":
            thing = SharedMemory(create=True, size=4096)
            undo = lambda: (thing.close(), thing.unlink())  # noqa: E731
        else:
            thing = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
            undo = lambda: [os.close(fd) for fd in thing]  # noqa: E731
        try:
            seconds, left = leftovers.wait(0.2)
            assert seconds >= 0.2
            assert any(what in line for line in left), left
        finally:
            undo()
