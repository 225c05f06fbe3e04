"""Faults of all kinds in a row: each told as what it is, and nothing left a second later.

COUNT=20 make soak SOAK_ARGS="-k faults"        a short version; 200 by default, and 100 of each
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import pytest
import torch
import torch.distributed as dist
from programs import Program, faults, page, provoke, wrong_with
from programs.faults import kill_me, on, program
from soak_ranks_common import Leftovers, by_value, count, marked_world, median, report

from course_lib import CourseError, Deadlock, Hang, Hazard, Mismatch, RankDied, RankFailed, run

by_value(__name__)
AT_ONCE = 4  # worlds that run beside one another
FAULTS = [one for one in page.PROGRAMS + faults.PROGRAMS if "run" in one.engines]


def children_then_hang() -> None:
    """The daemon's way: a child of a child, in its own session."""
    code = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    subprocess.Popen(["sleep", "1000"])
    time.sleep(1000)


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


def block_in_c() -> None:
    """Block in compiled code for good, with Python's lock held: no Python thread runs meanwhile.

    A thread that locks a plain mutex twice waits for itself; a signal does not wake it.
    """
    mutex = ctypes.create_string_buffer(128)  # zeros: PTHREAD_MUTEX_INITIALIZER
    library = ctypes.PyDLL(None)
    for _ in range(2):
        library.pthread_mutex_lock(mutex)


def kill_the_server() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def by_hand(then: Callable[[], Any]) -> Callable[[], None]:
    def work() -> None:
        dist.init_process_group("gloo")
        then()

    return work


def add_up() -> None:
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == dist.get_world_size()


# What is told of them is no news; what they leave is.
MESSY = [
    program("blocked in compiled code", Hang, on(0, block_in_c), (0,), timeout=1.0),
    program("children, then a hang", Hang, children_then_hang, timeout=1.0),
    program("a child that is deaf to SIGTERM", RankDied, deaf_child),
    program("workers of a DataLoader", RankFailed, loader_then_raise),
    program("shared memory, then SIGKILL", RankDied, shared_tensor_then_die),
    program("init=False, SIGKILL", RankDied, by_hand(kill_me(9)), init=False),
    program("the fork server killed", CourseError, kill_the_server),
]


def warm_up(leftovers: Leftovers) -> None:
    """One run of each kind that opens something for good when it is first called."""
    for init in (False, True, True):
        run(add_up if init else by_hand(add_up), world_size=2, init=init)
    leftovers.wait(5.0)
    leftovers.warm()
    assert leftovers.found() == []


def mixed(number: int) -> list[Program]:
    """Every kind as often as every other, in an order that no kind depends on."""
    draw, chosen = random.Random(len(FAULTS)), list[Program]()
    while len(chosen) < number:
        chosen += draw.sample(FAULTS + MESSY, len(FAULTS + MESSY))
    return chosen[:number]


@pytest.mark.timeout(3600)
def test_faults_in_a_row_leave_nothing(monkeypatch):
    """200 of them: the right error each time, and within a second no process, port, file, shared
    memory or open file, with a world that stands by (which is then all that is there) and without.
    """
    wrong: list[str] = []
    cleared: list[float] = []
    told: list[float] = []
    kept: list[BaseException] = []  # as a notebook keeps the last error, with all its frames
    with marked_world() as leftovers:
        warm_up(leftovers)
        faults = mixed(count(200))
        for number, fault in enumerate(faults):
            monkeypatch.setenv("COURSE_LIB_STANDBY", "0" if number // 10 % 2 else "60")
            start = time.perf_counter()
            error = provoke(fault)
            told.append(time.perf_counter() - start)
            wrong += filter(None, [wrong_with(fault, error)])
            kept = [*kept[-4:], *filter(None, [error])]
            seconds, left = leftovers.wait()
            cleared.append(seconds)
            wrong += [f"{number} {fault.name}: {what}" for what in left]
    report(
        "ranks_faults",
        faults=len(faults),
        kinds=len(Counter(f.name for f in faults)),
        wrong=wrong,
        told_in_median=median(told),
        told_in_most=round(max(told), 2),
        cleared_in_median=median(cleared),
        cleared_in_most=round(max(cleared), 3),
    )
    assert wrong == []


def after_a_moment(fn: Callable[[], Any], moments: list[float]) -> Any:
    """Which rank comes first is left to chance, here a little more than usual."""
    time.sleep(moments[dist.get_rank()])
    return fn()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "fault", [f for f in FAULTS if f.kind in (Deadlock, Mismatch, Hazard)], ids=lambda f: f.name
)
def test_faults_that_gloo_keeps_quiet_about_or_dies_of_are_named_every_time(fault):
    number = count(100)

    def told(seed: int) -> str:
        draw = random.Random(seed)
        moments = [draw.choice((0.0, 0.02 * draw.random())) for _ in range(4)]

        def late(fn: Callable[[], Any], **options: Any) -> Any:
            return run(lambda: after_a_moment(fn, moments), **options)

        return wrong_with(fault, provoke(fault, late))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [*filter(None, pool.map(told, range(number)))]
    report(
        "ranks_fault-" + "".join(c if c.isalnum() else "_" for c in fault.name),
        fault=fault.name,
        runs=number,
        right=number - len(wrong),
        wrong=wrong[:5],
    )
    assert not wrong


# ---- the judge can see --------------------------------------------------------------------------


KINDS = ("process", "port", "file", "shared memory", "open files")


def leave(undo: ExitStack) -> None:
    """One of each kind."""
    sleeper = subprocess.Popen(["sleep", "1000"])
    undo.callback(sleeper.wait)
    undo.callback(sleeper.kill)
    undo.enter_context(socket.create_server(("127.0.0.1", 0)))
    undo.enter_context(tempfile.TemporaryDirectory())
    memory = SharedMemory(create=True, size=4096)
    undo.callback(memory.unlink)
    undo.callback(memory.close)


def test_what_is_left_is_seen():
    with marked_world() as leftovers, ExitStack() as undo:
        assert leftovers.found() == []
        leave(undo)
        seconds, left = leftovers.wait(0.2)
    assert seconds >= 0.2
    assert [kind for kind in KINDS if not any(kind in line for line in left)] == []
