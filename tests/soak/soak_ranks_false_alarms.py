"""Programs that are slow and right: never accused, whatever the rest of the machine does.

    COUNT=20 make soak SOAK_ARGS="-k false_alarms"      a short version; 200 by default

Ranks sleep, compute, are stopped and woken, or move large tensors, for up to ten seconds and at
different places, while every core is busy. Several worlds run beside one another, as in notebooks
that are open at the same time.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.append(str(Path(__file__).resolve().parents[1] / "course_sim"))
from random_programs import execute, make_program
from soak_ranks_common import busy, by_value, count, median, report

from course_lib import CourseError, Deadlock, run

by_value(__name__)
by_value("random_programs")
LONGEST = 10.0
AT_ONCE = 6
LARGE = 16_000_000  # elements: 64 MB


# ---- how time passes ----------------------------------------------------------------------------


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def compute_in_python(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(1000))


def be_stopped_later(seconds: float) -> None:
    """Stopped by somebody else at some moment of what follows, mostly within a call."""
    code = (
        "import os, sys, time; pid = int(sys.argv[1]); time.sleep(0.05);"
        "os.kill(pid, 19); time.sleep(float(sys.argv[2])); os.kill(pid, 18)"
    )
    subprocess.Popen([sys.executable, "-S", "-c", code, str(os.getpid()), str(seconds)])


WAYS = (sleep, compute_in_python, be_stopped_later)


# ---- right programs: ``pause()`` passes some time on the slow rank, and none on the others ------


def drawn_by_lot(pause: Callable[[], None], seed: int) -> Any:
    """Messages and collectives of all kinds, with the pause between them."""
    execute(make_program(seed), pause)
    return True


def large(pause: Callable[[], None], _: int) -> Any:
    """Tensors that take their time by themselves, and a recv that comes late."""
    x, rank = torch.ones(LARGE), dist.get_rank()
    dist.broadcast(x, 0)
    pause()
    dist.all_reduce(x)
    for _ in range(2):
        if rank == 0:
            dist.send(x, 1)
        pause()
        if rank == 1:
            dist.recv(x, 0)
    return x[-1].item() == dist.get_world_size()


def returns_early(pause: Callable[[], None], _: int) -> Any:
    """One rank is done while the others go on among themselves."""
    rank, n = dist.get_rank(), dist.get_world_size()
    x = torch.ones(1)
    dist.all_reduce(x)
    if rank == n - 1:
        return True
    pause()
    if rank == 0:
        dist.send(x, 1) if n > 2 else None
    elif rank == 1:
        pause()
        dist.recv(x, 0) if n > 2 else None
    return True


def pauses_in_backward(pause: Callable[[], None], _: int) -> Any:
    """Buckets are under way while a hook of the program's own takes its time."""
    torch.manual_seed(1)
    layers = [torch.nn.Linear(100, 100) for _ in range(3)]
    model = torch.nn.Sequential(*layers)
    layers[0].weight.register_hook(lambda grad: pause())
    parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
    for _ in range(3):
        parallel(torch.ones(2, 100)).sum().backward()
    return True


def shards(pause: Callable[[], None], _: int) -> Any:
    """Each layer's parameters are gathered, and its gradients scattered."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layers = [torch.nn.Linear(64, 64) for _ in range(3)]
    model = torch.nn.Sequential(*layers)
    for layer in layers:
        fully_shard(layer, mesh=mesh)
        layer.register_forward_hook(lambda *_: pause())
    fully_shard(model, mesh=mesh)
    for _ in range(3):
        model(torch.ones(2, 64)).sum().backward()
    return True


def ahead_of_a_message(pause: Callable[[], None], _: int) -> Any:
    """A sum is under way that another rank joins only after a message from this one."""
    rank, n, x = dist.get_rank(), dist.get_world_size(), torch.ones(1)
    if rank:
        dist.recv(x, rank - 1)
    total = functional.all_reduce(x, "sum", dist.group.WORLD) if rank == 0 else x
    pause()
    if rank + 1 < n:
        dist.send(x, rank + 1)
    if rank:
        total = functional.all_reduce(x, "sum", dist.group.WORLD)
    return total.sum().item() == n


def leaves_unevenly(pause: Callable[[], None], _: int) -> Any:
    """Some ranks have more batches than others, as DDP's join allows."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 1))
    with model.join():
        for _ in range(1 + dist.get_rank()):
            model(torch.ones(1, 10)).sum().backward()
            pause()
    return True


def by_hand(pause: Callable[[], None], _: int) -> Any:
    """The group is formed late; many small calls, with nobody to wait for a pause's end."""
    pause()
    dist.init_process_group("gloo")
    x = torch.ones(1)
    work = dist.all_reduce(x, async_op=True)
    pause()
    while not work.is_completed():
        time.sleep(0.01)
    for at in range(300):
        dist.broadcast(x, at % dist.get_world_size())
    return x.item() == dist.get_world_size()


SPECIAL = (
    large,
    returns_early,
    by_hand,
    pauses_in_backward,
    shards,
    ahead_of_a_message,
    leaves_unevenly,
)


class Slow(NamedTuple):
    """One run: the program, how the slow ranks pass their time, and for how long."""

    seed: int
    program: Callable
    way: Callable[[float], None]
    ranks: tuple[int, ...]
    seconds: float
    world_size: int


def drawn(seed: int) -> Slow:
    """Every other program is a special one. A program may pause several times: the time that it was
    given is for all of them together.
    """
    draw = random.Random(seed)
    program = drawn_by_lot if seed % 2 else SPECIAL[seed // 2 % len(SPECIAL)]
    size = make_program(seed)["n"]
    slow = tuple(sorted(draw.sample(range(size), draw.randint(1, size - 1))))
    seconds = min(LONGEST, draw.choice((0.1, 1.0, 2.0, 3.0, 5.0, 10.0)) * draw.uniform(0.8, 1.0))
    return Slow(seed, program, draw.choice(WAYS), slow, seconds, size)


def play(slow: Slow) -> Any:
    """What every rank does."""
    left = [slow.seconds / 2, slow.seconds / 2]
    rank = int(os.environ["RANK"])

    def pause() -> None:
        if rank in slow.ranks and left:
            slow.way(left.pop())

    return slow.program(pause, slow.seed)


def accused(slow: Slow) -> tuple[float, str]:
    """Seconds that the run took, and what it was accused of ("" for nothing)."""
    start = time.perf_counter()
    try:
        done = run(
            play, slow, world_size=slow.world_size, timeout=300.0, init=slow.program is not by_hand
        )
    except CourseError as error:
        return time.perf_counter() - start, f"{type(error).__name__}: {error}"
    wrong = "" if all(done.results) else f"a wrong result: {done.results}"
    return time.perf_counter() - start, wrong


@pytest.mark.timeout(3600)
def test_slow_programs_are_not_accused():
    """200 slow runs, none of them ends in an error. Every other program is a special one."""
    number = count(200)
    run(time.perf_counter, world_size=2)  # the fork server is started once
    with busy(), ThreadPoolExecutor(AT_ONCE) as pool:
        runs = [drawn(seed) for seed in range(number)]
        found = list(pool.map(accused, runs))
    wrong = [f"{slow}: {what}" for slow, (_, what) in zip(runs, found, strict=True) if what]
    seconds = [seconds for seconds, _ in found]
    report(
        "ranks_false_alarms",
        runs=number,
        false_alarms=wrong,
        seconds_median=median(seconds),
        seconds_most=round(max(seconds), 1),
        slower_than_2_s=sum(s > 2 for s in seconds),
        by_way={w.__name__: sum(r.way is w for r in runs) for w in WAYS},
    )
    assert wrong == []


def test_a_program_that_is_wrong_is_accused():
    """The judge of this file sees an accusation and a wrong result where there is one."""

    def stuck(pause: Callable[[], None], _: int) -> Any:
        pause()
        dist.recv(torch.ones(1), 1 - dist.get_rank())

    slow = Slow(0, stuck, sleep, (0,), 0.1, 2)
    assert accused(slow)[1].startswith(f"{Deadlock.__name__}: ")
    assert accused(slow._replace(program=lambda pause, seed: dist.get_rank() == 0))[1]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_passing_time_takes_it(way):
    child = multiprocessing.get_context("fork").Process(target=lambda: (way(0.5), sleep(0.2)))
    start = time.perf_counter()
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert time.perf_counter() - start >= 0.5
