"""What is said of a world that went wrong, where a table of faults cannot hold it; and of one that
did not.
"""

import pickle
import sys
import time

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from programs.faults import fail, on

from course_lib import Deadlock, RankFailed, expect, run
from course_lib.recording import stuck_ranks as standing

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.usefixtures("impatient")


def cycle():
    dist.recv(torch.ones(1), (dist.get_rank() + 1) % dist.get_world_size())


def test_the_first_failure_comes_with_all_that_was_said_before(capsys):
    def speak_and_fail():
        print("so far so good")
        on(1, fail)()

    with pytest.raises(RankFailed) as caught:
        run(speak_and_fail, world_size=2)
    error = caught.value
    assert (error.rank, error.kind, error.consequences) == (1, "ValueError", ())
    assert capsys.readouterr().out == "[0] so far so good\n[1] so far so good\n"
    assert error.run.output == "[0] so far so good\n[1] so far so good\n"
    assert [e.op for e in error.run.trace.of(0)] == ["barrier", "barrier"]
    copy = pickle.loads(pickle.dumps(error))  # errors travel between processes
    assert (str(copy), copy.rank, copy.kind) == (str(error), 1, "ValueError")


@pytest.mark.slow
def test_a_deadlock_is_told_in_seconds_with_its_cycle_and_its_lines(monkeypatch):
    monkeypatch.undo()
    start = time.perf_counter()
    with pytest.raises(Deadlock) as caught:
        run(cycle, world_size=3)
    assert caught.value.cycle == (0, 1, 2)
    assert [wait.on for wait in caught.value.waits] == [(1,), (2,), (0,)]
    assert all("dist.recv" in wait.line for wait in caught.value.waits)
    assert time.perf_counter() - start < 20  # about two, and the fork server may have to start


def test_slow_is_not_stuck():
    long = 5 * standing.DEADLOCK_SECONDS

    def slow():
        rank = dist.get_rank()
        x = torch.ones(1)
        if rank == 0:
            time.sleep(long)
        if rank == 2:
            dist.recv(x)
        else:
            dist.send(x, 2) if rank == 0 else None
        dist.all_reduce(x)
        return x.item()

    assert run(slow, world_size=3).results == [3.0] * 3


def test_right_programs_are_not_accused():
    def right():
        rank, n = dist.get_rank(), dist.get_world_size()
        if rank < 2:
            local = dist.new_group([0, 1], use_local_synchronization=True)
            dist.all_reduce(torch.ones(1), group=local)
        x = torch.arange(6.0).reshape(2, 3).t()
        dist.all_reduce(x)  # dense, though not contiguous
        dist.all_reduce(torch.ones(2, 3) if rank else torch.ones(3, 2))  # the same number
        dist.scatter(torch.empty(1), [torch.ones(1)] * n if rank == 0 else None, src=0)
        dist.gather(torch.ones(2), list(torch.empty(n, 2)) if rank == 1 else None, dst=1)
        splits = [1 + (r == rank) for r in range(n)]
        dist.all_to_all_single(torch.empty(n + 1), torch.ones(sum(splits)), splits, splits)
        objects = [None] * n
        dist.all_gather_object(objects, "x" * (rank + 1))
        work = dist.all_reduce(torch.ones(1), async_op=True)
        while not work.is_completed():
            time.sleep(0.001)
        if rank == 0:
            dist.broadcast(torch.ones(1), src=0)
        else:
            dist.broadcast(torch.ones(1), src=0)
        return objects

    assert run(right, world_size=3).results == [["x", "xx", "xxx"]] * 3


# ---- in the cell ------------------------------------------------------------------------------


def test_expect_shows_the_error_and_keeps_it(capsys):
    with expect(Deadlock) as caught:
        run(cycle, world_size=2)
    assert isinstance(caught.error, Deadlock)
    assert capsys.readouterr().out.startswith("Deadlock: every rank waits for another.\n  rank 0")
    with pytest.raises(RankFailed), expect(Deadlock):
        run(fail, world_size=2)
