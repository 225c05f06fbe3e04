"""Calls that C++ makes, and waits for where no Python is: DDP's buckets, its first broadcasts, the
buffers of its forward, FSDP's gathers, functional collectives, futures. What fits is let through,
and what does not is told as the same call from Python would be.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from course_lib import CourseError, Deadlock, Mismatch, run, simulate
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


def functional_scatter() -> Step:
    n = dist.get_world_size()
    return lambda: functional.reduce_scatter_single(torch.ones(n), "sum", 0, dist.group.WORLD) + 1


def future() -> Step:
    return lambda: dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()


def wrapping() -> Step:
    return lambda: DistributedDataParallel(nn.Linear(2, 1))


MAKERS = [buckets, buffers, shards, functional_sum, functional_scatter, future, wrapping]


def leaves(make: Callable[[], Step], before: int) -> None:
    """All ranks make so many steps, and rank 1 does not make the last."""
    step = make()
    for _ in range(before + (dist.get_rank() != 1)):
        step()


def goes_elsewhere(make: Callable[[], Step], other: Step) -> None:
    """Rank 1 calls something else instead, and all go on."""
    step = make()
    other() if dist.get_rank() == 1 else step()
    step()


# `make check` takes the simulated ones, which end at once
ENGINES = [
    pytest.param(run, marks=pytest.mark.slow),
    simulate,
    partial(simulate, backend="nccl"),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("make", MAKERS)
def test_a_step_that_one_rank_does_not_make_is_told(
    make: Callable[[], Step], before: int, engine: Callable
):
    with pytest.raises(Deadlock, match="rank 1, which has already returned") as caught:
        engine(leaves, make, before, world_size=3)
    waits = caught.value.waits
    assert [wait.rank for wait in waits] == [0, 2]
    assert all(1 in wait.on and wait.line.source for wait in waits)


OTHERS = [dist.barrier, lambda: dist.all_reduce(torch.ones(100))]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("make", MAKERS)
def test_another_call_in_its_place_is_a_mismatch(
    make: Callable[[], Step], other: Step, engine: Callable
):
    with pytest.raises(Mismatch) as caught:
        engine(goes_elsewhere, make, other, world_size=3)
    assert caught.value.what in ("op", "shape")
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


@pytest.mark.slow
def test_what_is_never_made_is_told_beside_a_rank_that_computes():
    """Nothing is said of waiting while the rank computes, and all of it when it does not."""

    def late() -> None:
        model = DistributedDataParallel(nn.Linear(2, 1))
        if dist.get_rank() == 0:
            loss = model(torch.ones(1, 2)).sum()
            for _ in range(200):
                torch.ones(300, 300) @ torch.ones(300, 300)
            loss.backward()

    with pytest.raises(CourseError) as caught:
        run(late, world_size=2)
    assert type(caught.value) is Deadlock
    assert "loss.backward()" in str(caught.value)
