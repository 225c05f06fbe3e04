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
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from soak_ranks_common import busy, by_value, count, median, report

from course_lib import CourseError, Deadlock, run

by_value(__name__)
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


def compute_in_torch(seconds: float) -> None:
    end = time.perf_counter() + seconds
    x = torch.rand(300, 300)
    while time.perf_counter() < end:
        x = torch.tanh(x @ x)


def be_stopped(seconds: float) -> None:
    """Stopped by a signal; a child wakes it up again."""
    code = "import os, sys, time; time.sleep(float(sys.argv[2])); os.kill(int(sys.argv[1]), 18)"
    waker = subprocess.Popen([sys.executable, "-S", "-c", code, str(os.getpid()), str(seconds)])
    os.kill(os.getpid(), signal.SIGSTOP)
    waker.wait()


def be_stopped_later(seconds: float) -> None:
    """Stopped by somebody else at some moment of what follows, mostly within a call."""
    code = (
        "import os, sys, time; pid = int(sys.argv[1]); time.sleep(0.05);"
        "os.kill(pid, 19); time.sleep(float(sys.argv[2])); os.kill(pid, 18)"
    )
    subprocess.Popen([sys.executable, "-S", "-c", code, str(os.getpid()), str(seconds)])


WAYS = (sleep, compute_in_python, compute_in_torch, be_stopped, be_stopped_later)


# ---- right programs: ``pause()`` passes some time on the slow rank, and none on the others ------


def reduces(pause: Callable[[], None]) -> Any:
    """Collectives, with the pause between them."""
    x = torch.ones(4)
    dist.all_reduce(x)
    pause()
    dist.all_reduce(x)
    dist.barrier()
    return x[0].item() == dist.get_world_size() ** 2


def passes_on(pause: Callable[[], None]) -> Any:
    """A chain of receives: the last rank waits for all the others."""
    rank, n = dist.get_rank(), dist.get_world_size()
    x = torch.zeros(1)
    if rank > 0:
        dist.recv(x, rank - 1)
    pause()
    x += 1
    if rank < n - 1:
        dist.send(x, rank + 1)
    return x.item() == rank + 1


def ring(pause: Callable[[], None]) -> Any:
    """isend and irecv, both waited for after the pause."""
    rank, n = dist.get_rank(), dist.get_world_size()
    inbox = torch.empty(1000)
    works = [dist.isend(torch.full((1000,), float(rank)), (rank + 1) % n),
             dist.irecv(inbox, (rank - 1) % n)]  # fmt: skip
    pause()
    for work in works:
        work.wait()
    return inbox[0].item() == (rank - 1) % n


def late_receiver(pause: Callable[[], None]) -> Any:
    """A send that waits for its recv, and the recv comes late."""
    rank = dist.get_rank()
    x = torch.full((LARGE // 16,), float(rank))
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        pause()
        dist.recv(x, 0)
    else:
        pause()
    return x[-1].item() == (rank if rank > 1 else 0)


def any_source(pause: Callable[[], None]) -> Any:
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank:
        pause()
        dist.send(torch.tensor([float(rank)]), 0, tag=rank % 2)
        return True
    x, seen = torch.zeros(1), []
    for sender in range(1, n):
        pause()
        dist.recv(x, tag=sender % 2)
        seen.append(x.item())
    return sorted(seen) == list(range(1, n))


def batches(pause: Callable[[], None]) -> Any:
    rank, n = dist.get_rank(), dist.get_world_size()
    inboxes = [torch.zeros(3) for _ in range(n)]
    others = [r for r in range(n) if r != rank]
    ops = [dist.P2POp(dist.isend, torch.full((3,), float(rank)), r) for r in others]
    ops += [dist.P2POp(dist.irecv, inboxes[r], r) for r in others]
    pause()
    works = dist.batch_isend_irecv(ops)
    pause()
    for work in works:
        work.wait()
    return [box[0].item() for box in inboxes] == [r if r != rank else 0 for r in range(n)]


def large(pause: Callable[[], None]) -> Any:
    """Tensors that take their time by themselves."""
    x = torch.ones(LARGE)
    dist.broadcast(x, 0)
    pause()
    dist.all_reduce(x)
    return x[-1].item() == dist.get_world_size()


def large_messages(pause: Callable[[], None]) -> Any:
    rank = dist.get_rank()
    x = torch.ones(LARGE)
    pause()
    for _ in range(2):
        if rank == 0:
            dist.send(x, 1)
        elif rank == 1:
            dist.recv(x, 0)
    dist.barrier()
    return True


def asynchronous(pause: Callable[[], None]) -> Any:
    x = torch.ones(10_000)
    work = dist.all_reduce(x, async_op=True)
    pause()
    while not work.is_completed():
        time.sleep(0.01)
    future = dist.all_reduce(x, async_op=True).get_future()
    pause()
    future.wait()
    return x[0].item() == dist.get_world_size() ** 2


def groups(pause: Callable[[], None]) -> Any:
    """Neighbours in groups of two, then all; a slow member makes others late, and no more."""
    rank, n = dist.get_rank(), dist.get_world_size()
    made = [dist.new_group([r, (r + 1) % n]) for r in range(n)] if n > 2 else [dist.group.WORLD] * n
    x = torch.ones(1)
    for first in range(n):
        if rank in (first, (first + 1) % n):
            pause()
            dist.all_reduce(x, group=made[first])
    dist.barrier()
    return x.item() >= 2


def objects(pause: Callable[[], None]) -> Any:
    rank, n = dist.get_rank(), dist.get_world_size()
    pause()
    seen: list[Any] = [None] * n
    dist.all_gather_object(seen, "x" * rank)
    pause()
    word = ["from zero" if rank == 0 else None]
    dist.broadcast_object_list(word, src=0)
    return seen == ["x" * r for r in range(n)] and word == ["from zero"]


def returns_early(pause: Callable[[], None]) -> Any:
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


def barriers(pause: Callable[[], None]) -> Any:
    dist.barrier()
    pause()
    dist.monitored_barrier()
    pause()
    dist.barrier()
    return True


def trains(pause: Callable[[], None]) -> Any:
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 10))
    for _ in range(3):
        model(torch.ones(2, 100)).sum().backward()
        pause()
    grad = model.module.weight.grad
    assert grad is not None
    return bool(torch.isfinite(grad).all())


def by_hand(pause: Callable[[], None]) -> Any:
    """The group is formed late."""
    pause()
    dist.init_process_group("gloo")
    x = torch.ones(1)
    dist.all_reduce(x)
    return x.item() == dist.get_world_size()


def many_small(pause: Callable[[], None]) -> Any:
    x = torch.ones(1)
    for at in range(300):
        dist.broadcast(x, at % dist.get_world_size())
        if at == 150:
            pause()
    return True


PROGRAMS = (reduces, passes_on, ring, late_receiver, any_source, batches, large, large_messages,
            asynchronous, groups, objects, returns_early, barriers, trains, by_hand,
            many_small)  # fmt: skip


class Slow(NamedTuple):
    """One run: the program, how the slow ranks pass their time, and for how long."""

    program: Callable
    way: Callable[[float], None]
    ranks: tuple[int, ...]
    seconds: float
    world_size: int

    def __str__(self) -> str:
        return (f"{self.program.__name__}, {self.world_size} ranks, of which {self.ranks} "
                f"{self.way.__name__} {self.seconds:.1f} s")  # fmt: skip


def drawn(seed: int) -> Slow:
    """Each program in turn; the rest is drawn. A program may pause several times: the time that
    it was given is for all of them together.
    """
    draw = random.Random(seed)
    size = draw.choice((2, 3, 4))
    slow = tuple(sorted(draw.sample(range(size), draw.randint(1, size - 1))))
    seconds = min(LONGEST, draw.choice((0.1, 1.0, 2.0, 3.0, 5.0, 10.0)) * draw.uniform(0.8, 1.0))
    return Slow(PROGRAMS[seed % len(PROGRAMS)], draw.choice(WAYS), slow, seconds, size)


def play(slow: Slow) -> Any:
    """What every rank does."""
    left = [slow.seconds / 2, slow.seconds / 2]
    rank = int(os.environ["RANK"])

    def pause() -> None:
        if rank in slow.ranks and left:
            slow.way(left.pop())

    return slow.program(pause)


def accused(slow: Slow) -> tuple[float, str]:
    """Seconds that the run took, and what it was accused of ("" for nothing)."""
    start = time.perf_counter()
    try:
        done = run(play, slow, world_size=slow.world_size, timeout=300.0,
                   init=slow.program is not by_hand)  # fmt: skip
    except CourseError as error:
        return time.perf_counter() - start, f"{type(error).__name__}: {error}"
    wrong = "" if all(done.results) else f"a wrong result: {done.results}"
    return time.perf_counter() - start, wrong


@pytest.mark.timeout(3600)
def test_slow_programs_are_not_accused():
    """200 slow runs, none of them ends in an error."""
    number = count(200)
    run(time.perf_counter, world_size=2)  # the fork server is started once
    with busy(), ThreadPoolExecutor(AT_ONCE) as pool:
        runs = [drawn(seed) for seed in range(number)]
        found = list(pool.map(accused, runs))
    wrong = [f"{slow}: {what}" for slow, (_, what) in zip(runs, found, strict=True) if what]
    seconds = [seconds for seconds, _ in found]
    report("ranks_false_alarms", runs=number, false_alarms=wrong, seconds_median=median(seconds),
           seconds_most=round(max(seconds), 1), slower_than_2_s=sum(s > 2 for s in seconds),
           by_way={w.__name__: sum(r.way is w for r in runs) for w in WAYS})  # fmt: skip
    assert wrong == []


def test_a_program_that_is_wrong_is_accused():
    """The judge of this file sees an accusation and a wrong result where there is one."""

    def stuck(pause: Callable[[], None]) -> Any:
        pause()
        dist.recv(torch.ones(1), 1 - dist.get_rank())

    slow = Slow(stuck, sleep, (0,), 0.1, 2)
    assert accused(slow)[1].startswith(f"{Deadlock.__name__}: ")
    assert accused(slow._replace(program=lambda pause: dist.get_rank() == 0))[1]


def test_every_way_of_passing_time_takes_it():
    for way in WAYS:
        context = multiprocessing.get_context("fork")
        process = context.Process(target=lambda way=way: (way(0.5), time.sleep(0.2)))
        start = time.perf_counter()
        process.start()
        process.join(20)
        assert process.exitcode == 0
        assert time.perf_counter() - start >= 0.5, way
