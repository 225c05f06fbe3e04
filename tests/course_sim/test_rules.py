"""What gloo and NCCL take, refuse and wait for: simulated ranks do it likewise."""

from __future__ import annotations

import contextlib
import inspect
import time
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist

from course_lib import RankFailed, run, simulate
from course_sim.gpu import streams
from course_sim.isolation import private

GLOO = {"run": partial(run, timeout=30), "simulate": simulate}
ENGINES = {**GLOO, "nccl": partial(simulate, backend="nccl")}
every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
both_gloos = pytest.mark.parametrize("engine", GLOO.values(), ids=GLOO)


def sums_and_meets(asynchronous):
    """Each Work is dropped, or kept; the barrier is behind it either way."""
    x, y = torch.full((5,), dist.get_rank() + 1.0), torch.ones(2)
    dist.all_reduce(x, async_op=True)
    kept = dist.all_gather([torch.empty(2), torch.empty(2)], y, async_op=True)
    barrier = dist.barrier(async_op=asynchronous)
    if barrier is not None:
        barrier.wait()
    seen = x.tolist()
    x += 1
    kept.wait()
    return seen, x.tolist()


@every_engine
@pytest.mark.parametrize("asynchronous", [False, True])
def test_after_a_barrier_earlier_collectives_of_its_group_are_over(engine, asynchronous):
    assert (
        engine(sums_and_meets, asynchronous, world_size=2).results == [([3.0] * 5, [4.0] * 5)] * 2
    )


def meets_elsewhere(group_of):
    group, x = dist.new_group(), torch.ones(2)
    dist.all_reduce(x, async_op=True)
    dist.barrier(group if group_of == "another" else None, async_op=group_of == "never waited")
    dist.all_reduce(torch.ones(2))  # so that no rank leaves while another one is in the barrier
    return x.shape


@both_gloos
@pytest.mark.parametrize("group_of", ["another", "never waited"])
def test_no_other_barrier_is_a_wait(engine, group_of):
    with pytest.raises(Exception, match=r"never waits for its (all_reduce|barrier)"):
        engine(meets_elsewhere, group_of, world_size=2)


def meets_late(late, seconds):
    if dist.get_rank() == late:
        time.sleep(1.0)
    dist.monitored_barrier(timeout=timedelta(seconds=seconds))
    return True


@pytest.mark.slow
@both_gloos
def test_the_timeout_of_a_monitored_barrier_is_rank_0s(engine):
    assert engine(meets_late, 0, 0.5, world_size=3).results == [True] * 3


def expects_to_be_alone(late):
    """The last rank comes when the barrier has been given up, or not at all."""
    try:
        if dist.get_rank() == 2:
            time.sleep(1.0)
        if dist.get_rank() < 2 or late:
            dist.monitored_barrier(timeout=timedelta(seconds=0.5))
    except RuntimeError:
        return "raised"
    return "returned"


@pytest.mark.slow
@both_gloos
def test_who_gives_up_a_monitored_barrier_leaves_nobody_in_it(engine):
    for late in (False, True):
        results = engine(expects_to_be_alone, late, world_size=3).results
        assert results == ["raised", "raised", "raised" if late else "returned"]


def test_nccl_has_no_monitored_barrier():
    with pytest.raises(RankFailed, match="NCCL has no monitored_barrier"):
        simulate(meets_late, 0, 9, world_size=2, backend="nccl")


def reduces(dtype, op=None):
    dist.all_reduce(torch.ones(2).to(dtype), op=op or dist.ReduceOp.SUM)


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_the_backend_that_refuses_is_named(backend):
    with pytest.raises(RankFailed, match=f"{backend} has no all_reduce of torch.int16"):
        simulate(reduces, torch.int16, world_size=2, backend=backend)


def gathers(shapes):
    out = [torch.empty(shape) for shape in shapes]
    mine = torch.full(shapes[dist.get_rank()], float(dist.get_rank()))
    dist.all_gather(out, mine)
    return [(tuple(o.shape), o.sum().item()) for o in out]


@pytest.mark.parametrize("shapes", [((2, 3), (3, 2)), ((2,), (3,))])
def test_nccl_gathers_whatever_shapes_a_list_has(shapes):
    size = torch.Size(shapes[1]).numel()
    wanted = [(shapes[0], 0.0), (shapes[1], float(size))]
    assert simulate(gathers, shapes, world_size=2, backend="nccl").results == [wanted] * 2


def futures_of():
    x, parts = torch.ones(2), list(torch.ones(2, 1))
    calls = {
        "reduce_scatter": lambda: dist.reduce_scatter(x[:1], parts, async_op=True),
        "all_reduce": lambda: dist.all_reduce(x, async_op=True),
        "all_to_all": lambda: dist.all_to_all(list(torch.empty(2, 1)), parts, async_op=True),
    }
    out = []
    for op, call in calls.items():
        work = call()
        with contextlib.suppress(RuntimeError):
            work.get_future().wait()
            out.append(op)
        work.wait()
    return out


@every_engine
def test_futures_are_where_the_backend_has_them(engine):
    has = ["reduce_scatter"] * (engine is ENGINES["nccl"]) + ["all_reduce", "all_to_all"]
    assert engine(futures_of, world_size=2).results == [has] * 2


def makes_rpcs():
    from torch.distributed import rpc

    rpc.init_rpc("me", rank=dist.get_rank(), world_size=2)


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_rpc_is_refused_at_once(backend):
    with pytest.raises(RankFailed, match="has no RPC"):
        simulate(makes_rpcs, world_size=2, backend=backend, limit=10)


def replaced():
    """What stands in ranks in place of which function."""
    for owner, name, replace in [*private._patches(), *streams.patches()]:
        plain = inspect.unwrap(replace)
        if inspect.isfunction(plain) and name != "_new_process_group_helper":  # torch's own alone
            ours = inspect.getclosurevars(plain).nonlocals.get("replacement")
            if ours is not None and callable(getattr(owner, name)):
                yield owner, name, ours


def misses(theirs, ours):
    """Why a function does not take what another one does, by place or by name; or None."""
    asked = list(theirs.parameters.values())
    placed = [p for p in asked if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = {p.name: 0 for p in asked if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    by_place_only = [0 for p in placed if p.kind is p.POSITIONAL_ONLY]
    try:
        ours.bind(None, *[0 for _ in placed])
        ours.bind(None, *[0 for p in placed if p.default is p.empty])
        ours.bind(None, *by_place_only, **named)
    except TypeError as error:
        return str(error)
    return None


def test_what_replaces_a_function_takes_what_that_takes():
    compared, wrong = 0, {}
    for owner, name, ours in replaced():
        try:
            theirs = inspect.signature(getattr(owner, name))
        except ValueError:  # in C, and says nothing
            continue
        compared += 1
        if why := misses(theirs, inspect.signature(ours)):
            wrong[f"{owner.__name__}.{name}"] = why
    assert not wrong and compared > 100


def test_a_function_that_takes_less_is_seen():
    assert misses(inspect.signature(torch.cpu.synchronize), inspect.signature(lambda rank, *_: 0))


def synchronizes():
    torch.cpu.synchronize(device="cpu")
    torch.cuda.synchronize(device=None)
    torch.accelerator.synchronize(device=None)
    torch.cuda.current_stream(device=None)
    return True


def test_streams_take_a_device_by_name():
    assert simulate(synchronizes, world_size=2, backend="nccl").results == [True] * 2


def waits_twice():
    x = torch.full((2,), 1.0 + dist.get_rank())
    work = dist.irecv(x, 0) if dist.get_rank() else dist.isend(x, 1)
    work.wait()
    work.wait()
    return x.sum().item()


def test_a_second_wait_for_a_message_never_returns_on_gloo():
    assert simulate(waits_twice, world_size=2, backend="nccl").results == [2.0, 2.0]
    with pytest.raises(RankFailed, match="on gloo a second wait\\(\\) for the same send or recv"):
        simulate(waits_twice, world_size=2)
