"""Calls that C++ makes, and waits for where no Python is: DDP's buckets, its first broadcasts, the
buffers of its forward, FSDP's gathers, functional collectives, futures. What fits is let through,
and what does not is told as the same call from Python would be.
"""

import sys
import time
from collections.abc import Callable

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from course_lib import Deadlock, Mismatch, run, simulate
from course_lib.recording import stuck_ranks as standing

cloudpickle.register_pickle_by_value(sys.modules[__name__])

Step = Callable[[], None]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(standing, "DEADLOCK_SECONDS", 0.4)


def buckets() -> Step:
    model = DistributedDataParallel(nn.Linear(2, 1))
    return lambda: model(torch.ones(1, 2)).sum().backward()


def buffers() -> Step:
    """A batch norm's averages are broadcast in each forward but the first."""
    model = DistributedDataParallel(nn.BatchNorm1d(2))
    model(torch.ones(2, 2))
    return lambda: [model(torch.ones(2, 2)).sum() for _ in range(2)]


def shards() -> Step:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return lambda: model(torch.ones(2, 4)).sum().backward()


def functional_sum() -> Step:
    return lambda: functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD) + 1


def future() -> Step:
    return lambda: dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()


def wrapping() -> Step:
    return lambda: DistributedDataParallel(nn.Linear(2, 1))


MAKERS = [buckets, buffers, shards, functional_sum, future, wrapping]


# `make check` takes the simulated ones, which end at once
ENGINES = [pytest.param(run, marks=pytest.mark.slow), simulate]


def differs(make: Callable[[], Step], other: Step | None) -> None:
    """In the third step rank 1 returns, or calls something else."""
    step = make()
    for number in range(4):
        if number == 2 and dist.get_rank() == 1:
            if other is None:
                return
            other()
        step()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", MAKERS)
def test_a_step_that_one_rank_does_not_make_is_told(make: Callable[[], Step], engine: Callable):
    with pytest.raises(Deadlock, match="rank 1, which has already returned") as caught:
        engine(differs, make, None, world_size=3)
    waits = caught.value.waits
    assert [wait.rank for wait in waits] == [0, 2]
    assert all(1 in wait.on and wait.line.source for wait in waits)
    with pytest.raises(Mismatch) as caught:
        engine(differs, make, dist.barrier, world_size=3)
    assert caught.value.what == "op"
    assert "None" not in str(caught.value)


@pytest.mark.slow
def test_two_steps_each_wait_for_the_other_in_cpp():
    """Each rank is in the backward of another model, whose group the other is yet to use."""

    def crossed() -> None:
        groups = [dist.new_group([0, 1]) for _ in range(2)]
        models = [DistributedDataParallel(nn.Linear(2, 1), process_group=g) for g in groups]
        for model in models if dist.get_rank() == 0 else models[::-1]:
            model(torch.ones(1, 2)).sum().backward()

    with pytest.raises(Deadlock, match="Ranks that share groups have to use them"):
        run(crossed, world_size=2)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_answer_by_hand_to_a_call_of_cpp_is_right(engine: Callable):
    """What Python calls need not be said by C++, too."""

    def by_hand() -> list[float]:
        model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
        dist.barrier()
        if dist.get_rank() == 0:
            model(torch.ones(1, 2)).sum().backward()
            return model.module.weight.grad.flatten().tolist()
        mine = torch.full((2,), 3.0) / dist.get_world_size()
        dist.all_reduce(mine)
        return mine.tolist()

    assert engine(by_hand, world_size=2).results == [[2.0, 2.0]] * 2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", MAKERS)
def test_right_steps_are_let_through_and_end_in_the_record(
    make: Callable[[], Step], engine: Callable
):
    def steps() -> None:
        step = make()
        for _ in range(3):
            step()
        dist.barrier()

    events = engine(steps, world_size=3).trace.events
    assert [e for e in events if e.completed is None] == []


@pytest.mark.slow
def test_computing_and_loading_between_calls_of_cpp_is_no_wait():
    """One rank has a call under way that another answers only after a message from the first, which
    takes its time: all that differs from a deadlock is that it is not inside torch.
    """

    long = 5 * standing.DEADLOCK_SECONDS

    def slow() -> float:
        rank, x = dist.get_rank(), torch.ones(1)
        if rank == 0:
            sums = functional.all_reduce(x, "sum", dist.group.WORLD)
            time.sleep(long)
            dist.send(x, 1)
            return sums.sum().item()
        dist.recv(x, 0)
        return functional.all_reduce(x, "sum", dist.group.WORLD).sum().item()

    assert run(slow, world_size=2).results == [2.0, 2.0]
