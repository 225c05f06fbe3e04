"""Nothing is left: no process, no port, no file, whatever becomes of the cell or its kernel."""

import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy
import pytest
import torch
import torch.distributed as dist
from processes import gone, open_files, wait_for

from course_lib import CourseError, Hang, RankFailed, device, run
from course_lib.launching import launcher
from course_lib.launching.plan import Deadline
from course_lib.launching.standby import Standby, standby

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
    def share_and_fail():
        from multiprocessing import Pipe, Process, connection

        def listen(there):
            listener = connection.Listener()  # as a DataLoader's workers do to hand over tensors
            there.send(os.path.dirname(listener.address))
            time.sleep(1000)

        here, there = Pipe()
        Process(target=listen, args=(there,)).start()
        raise ValueError(here.recv())

    with pytest.raises(RankFailed) as caught:
        run(share_and_fail, world_size=1)
    folder = Path(re.search(r"ValueError: (\S+)", str(caught.value))[1])
    assert folder.name.startswith("course_lib-")
    assert wait_for(lambda: not folder.exists(), 10)


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
def test_a_fork_server_that_has_ended_is_replaced_and_leaves_no_file():
    """One that answers no more, and then one that is killed while a world stands by."""
    server, files = server_and_files()
    os.kill(server, signal.SIGSTOP)
    with pytest.raises(Hang, match="did not start within 1 s"):
        run(dist.get_rank, world_size=3, timeout=1)
    assert gone([server]) == []
    new, files_then = server_and_files()
    assert (new != server, files_then) == (True, files)
    os.kill(new, signal.SIGKILL)
    assert gone([new]) == []
    assert run(dist.get_rank, world_size=2).results == [0, 1]


def test_a_fork_server_that_cannot_start_says_why(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('broken on purpose')")
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


@pytest.mark.parametrize("change", ["environment", "age"])
def test_a_world_that_does_not_fit_is_thrown_away(change, monkeypatch):
    waiting = stands_by()
    if change == "environment":
        monkeypatch.setenv("COURSE_TEST_WORD", "new")
    else:
        monkeypatch.setattr(standby.ready, "_born", 0.0)
    look = lambda: (os.getpid(), os.environ.get("COURSE_TEST_WORD"))  # noqa: E731
    pids, words = zip(*run(look, world_size=2).results, strict=True)
    assert not {*pids} & {*waiting}
    assert {*words} == {"new" if change == "environment" else None}
    assert gone(waiting) == []


@pytest.mark.slow
def test_ranks_that_nobody_wants_leave_by_themselves(monkeypatch):
    monkeypatch.setenv("COURSE_LIB_STANDBY", "0.5")
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


def test_a_standby_in_which_a_rank_has_died_is_replaced():
    os.kill(stands_by()[1], signal.SIGKILL)
    assert wait_for(lambda: not standby.ready.is_fresh(), 10)
    assert run(dist.get_rank, world_size=2).results == [0, 1]
