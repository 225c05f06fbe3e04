"""Nothing is left: no process, no port, no file, whatever becomes of the cell or its kernel."""

import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy
import pytest
import torch
import torch.distributed as dist
from processes import alive, gone, open_files, started, wait_for

from course_lib import CourseError, Hang, RankDied, RankFailed, device, run
from course_lib.launching import launcher
from course_lib.launching.plan import Deadline
from course_lib.launching.standby import Standby, standby
from course_lib.pickling import pack_call

ROOT = Path(__file__).parents[2]


def test_ranks_and_what_they_started_are_gone_after_a_failure(tmp_path):
    def fail(folder):
        child = subprocess.Popen(["sleep", "1000"])
        stray = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        Path(folder, str(dist.get_rank())).write_text(f"{os.getpid()} {child.pid} {stray.pid}")
        dist.barrier()
        if dist.get_rank() == 0:
            raise ValueError("stop")
        dist.barrier()

    with pytest.raises(RankFailed):
        run(fail, str(tmp_path), world_size=2)
    pids = [int(p) for file in tmp_path.iterdir() for p in file.read_text().split()]
    assert len(pids) == 6
    assert gone(pids) == []


def test_what_multiprocessing_keeps_in_files_goes_with_the_rank():
    def share_and_fail(child_only):
        from multiprocessing import Pipe, Process, connection, util

        def listen(there):
            listener = connection.Listener()  # as a DataLoader's workers do to hand over tensors
            there.send(os.path.dirname(listener.address))
            time.sleep(1000)

        here, there = Pipe()
        if not child_only:
            util.get_temp_dir()
        Process(target=listen, args=(there,)).start()
        raise ValueError(here.recv())

    for child_only in (True, False):
        with pytest.raises(RankFailed) as caught:
            run(share_and_fail, child_only, world_size=1)
        folder = Path(re.search(r"ValueError: (\S+)", str(caught.value))[1])
        assert folder.name.startswith("course_lib-")
        assert wait_for(lambda folder=folder: not folder.exists(), 10)


def stands_by():
    """The process ids of ranks that are ready for the next call of two."""
    run(lambda: None, world_size=2)
    standby.ready.wait_until_ready(Deadline(60))
    return [rank.pid for rank in standby.ready.ranks]


def test_files_do_not_pile_up():
    run(lambda: None, world_size=2)
    before = open_files()
    for _ in range(2):
        run(lambda: None, world_size=2)
        with pytest.raises(CourseError):
            run(lambda: 1 / 0, world_size=2)
    assert open_files() <= before


@pytest.fixture
def interruptible():
    """A shell's background jobs ignore interrupts, and so does all that they start, unless told."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


DIES = """
    import os, threading, time, torch.distributed as dist
    from course_lib import run
    from course_lib.launching.plan import Deadline
    from course_lib.launching.standby import standby

    def write(name, *numbers):
        with open(f"{folder}/{name}", "a") as file:
            print(*numbers, file=file)

    def wait():
        write("pids", os.getpid(), os.getppid())
        dist.barrier() if dist.get_rank() else time.sleep(1000)

    run(lambda: None, world_size=2)
    if os.fork() == 0:
        write("fork", os.getpid(), *run(dist.get_rank, world_size=2).results)
        time.sleep(1000)
    while not os.path.exists(f"{folder}/fork"):
        time.sleep(0.01)
    threading.Thread(target=run, args=(wait,), kwargs={"world_size": 2}).start()
    while not os.path.exists(f"{folder}/pids"):
        time.sleep(0.01)
    run(lambda: None, world_size=2)
    standby.ready.wait_until_ready(Deadline(60))
    write("pids", *[rank.pid for rank in standby.ready.ranks])
    time.sleep(1000)
"""


@pytest.mark.slow
def test_ranks_die_with_the_notebook_and_a_fork_of_it_has_its_own(tmp_path):
    """One rank is stuck in Python, one in a collective, and two stand by; the fork lives on."""
    code = f"folder = {str(tmp_path)!r}" + textwrap.dedent(DIES)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as notebook:
        pids = started(tmp_path / "pids", lines=3)
        notebook.kill()
    child, *results = map(int, (tmp_path / "fork").read_text().split())
    try:
        assert results == [0, 1]
        assert len(pids) == 5  # with the fork server
        assert gone(pids) == []
        assert alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_between_two_steps_comes_after_them(monkeypatch):
    """One when the world has just been opened, and another while it is ended."""
    worlds = []

    def take(plan, usual=standby.take_world):
        worlds.append(usual(plan))
        signal.raise_signal(signal.SIGINT)
        return worlds[0]

    def replace(world, usual=standby.replace):
        signal.raise_signal(signal.SIGINT)
        usual(world)

    ranks = stands_by()
    monkeypatch.setattr(standby, "take_world", take)
    monkeypatch.setattr(standby, "replace", replace)
    with pytest.raises(KeyboardInterrupt, match="its ranks have ended"):
        run(dist.get_rank, world_size=2)
    assert gone(ranks) == []


@pytest.mark.slow
def test_a_timeout_covers_what_is_sent():
    os.kill(stands_by()[1], signal.SIGSTOP)
    start = time.perf_counter()
    with pytest.raises(Hang, match="rank 1 did not answer: it may be stopped"):
        run(len, torch.zeros(5_000_000), world_size=2, timeout=1)
    assert time.perf_counter() - start < 20  # two; it took for ever


def server_and_files():
    """The fork server's process id, and how many files are open while a world stands by."""
    server = run(os.getppid, world_size=2).results[0]
    stands_by()
    return server, open_files()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["while a world stands by", "it only stops"])
def test_a_fork_server_that_has_ended_is_replaced_and_leaves_no_file(how):
    """One that a rank has killed: tests/soak."""
    server, files = server_and_files()
    if how == "it only stops":
        os.kill(server, signal.SIGSTOP)
        with pytest.raises(Hang, match="did not start within 1 s"):
            run(dist.get_rank, world_size=3, timeout=1)
    else:
        os.kill(server, signal.SIGKILL)
    assert gone([server]) == []
    new, files_then = server_and_files()
    assert new != server
    assert files_then == files


def test_a_fork_server_that_cannot_start_says_why(tmp_path, monkeypatch):
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('broken on purpose')")
    monkeypatch.setattr(launcher, "standby", Standby())
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(CourseError, match=r"has died \(ImportError: broken on purpose\): run"):
        run(dist.get_rank, world_size=2)


# ---- the world that stands by --------------------------------------------------------------------


def test_the_next_run_takes_the_world_that_stands_by_and_starts_another():
    waiting = stands_by()
    ready = standby.ready
    assert run(os.getpid, world_size=2).results == waiting
    assert standby.ready is not ready


@pytest.mark.parametrize("change", ["size", "environment", "age"])
def test_a_world_that_does_not_fit_is_thrown_away(change, monkeypatch):
    waiting = stands_by()
    if change == "environment":
        monkeypatch.setenv("COURSE_TEST_WORD", "new")
    if change == "age":
        monkeypatch.setattr(standby.ready, "_born", 0.0)
    size = 3 if change == "size" else 2
    results = run(
        lambda: (os.getpid(), os.environ.get("COURSE_TEST_WORD")), world_size=size
    ).results
    assert not {pid for pid, _ in results} & set(waiting)
    assert {word for _, word in results} == {"new" if change == "environment" else None}
    assert gone(waiting) == []


@pytest.mark.slow
def test_ranks_that_nobody_wants_leave_by_themselves(monkeypatch):
    monkeypatch.setenv("COURSE_LIB_STANDBY", "1.5")
    assert gone(stands_by(), 10.0) == []
    assert run(dist.get_rank, world_size=2).results == [0, 1]


def test_seeds_differ_by_rank_and_are_the_same_with_and_without_a_standby(monkeypatch):
    def draw():
        return device().type, torch.rand(1).item(), numpy.random.rand(), random.random()

    run(draw, world_size=2)
    with_standby = run(draw, world_size=2).results
    monkeypatch.setenv("COURSE_LIB_STANDBY", "0")
    run(draw, world_size=2)
    assert standby.ready is None
    without = run(draw, world_size=2).results
    assert with_standby == without
    assert len({number for _, *numbers in without for number in numbers}) == 6


def test_a_rank_starts_no_standby_of_its_own():
    assert run(lambda: os.environ["COURSE_LIB_STANDBY"], world_size=1).results == ["0"]


def test_a_standby_in_which_a_rank_has_died_is_replaced():
    os.kill(stands_by()[1], signal.SIGKILL)
    assert wait_for(lambda: not standby.ready.is_fresh(), 10)
    assert run(dist.get_rank, world_size=2).results == [0, 1]


def test_a_rank_that_dies_before_its_job_is_told():
    stands_by()
    world = standby.take_world(standby.ready.plan)
    try:
        os.kill(world.ranks[1].pid, signal.SIGKILL)
        assert gone([world.ranks[1].pid]) == []
        with pytest.raises(RankDied, match="SIGKILL"):
            world.work(pack_call(dist.barrier, ()), Deadline(60), True)
    finally:
        standby.replace(world)
