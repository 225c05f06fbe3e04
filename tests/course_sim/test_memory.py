"""A rank's memory under simulate is what it is under run: nothing of the simulator's is counted,
and nothing of the rank's is held."""

from __future__ import annotations

import builtins
import gc
import weakref
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib import CourseError, compute, count_memory, run, simulate
from course_sim import ahead

pytestmark = pytest.mark.slow

WIDTH = 64


# ---- programs that hold a known number of bytes -------------------------------------------------


def prefetched():
    """Each layer's weights are gathered while the one before computes: two layers are alive."""
    n = dist.get_world_size()
    shards = [torch.full((WIDTH * WIDTH // n,), 0.01) for _ in range(6)]
    layer = WIDTH * WIDTH * 4
    with count_memory(shards) as memory:
        at_first, x, most = memory.at_rest(), torch.ones(1, WIDTH), 0

        def gather(shard):
            whole = torch.empty(WIDTH * WIDTH)
            return whole, dist.all_gather_single(whole, shard, async_op=True)

        following = gather(shards[0])
        for number in range(len(shards)):
            (whole, work), following = following, None
            work.wait()
            if number + 1 < len(shards):
                following = gather(shards[number + 1])
            x = x @ whole.view(WIDTH, WIDTH)
            compute(1e-3)
            most = max(most, memory.now - at_first)
            del whole, work
    return [most // layer, (memory.at_rest() - at_first) // layer]


def other_calls():
    """Every call once, its tensors dropped: what is left is nothing."""
    rank, n = dist.get_rank(), dist.get_world_size()
    with count_memory() as memory:
        x, flat = torch.ones(64 * n), torch.empty(64)
        lists = [torch.empty(64) for _ in range(n)]
        dist.all_gather(lists, flat.fill_(1))
        dist.gather(flat, lists if rank == 0 else None, dst=0)
        dist.scatter(flat, lists if rank == 0 else None, src=0)
        dist.reduce_scatter(flat, lists)
        dist.reduce_scatter_single(flat, x)
        dist.all_to_all(lists, [torch.ones(64) for _ in range(n)])
        dist.all_to_all_single(torch.empty_like(x), x)
        dist.broadcast(x, 0)
        dist.reduce(x, 0)
        works = []
        if dist.get_backend() == "gloo":  # NCCL wants a batch
            works = [dist.isend(flat, (rank + 1) % n), dist.irecv(torch.empty(64), (rank - 1) % n)]
        pair = [
            dist.P2POp(dist.isend, flat, (rank + 1) % n),
            dist.P2POp(dist.irecv, torch.empty(64), (rank - 1) % n),
        ]
        for work in [*works, *dist.batch_isend_irecv(pair)]:
            work.wait()
        things = [None] * n
        dist.all_gather_object(things, "thing")
        del x, flat, lists, work, works, pair
        return memory.at_rest()


def test_a_rank_holds_as_many_bytes_as_in_a_process_of_its_own():
    """Of steps of training: tests/course_tools/test_count_memory.py."""
    for engine in (run, simulate, partial(simulate, backend="nccl")):
        job = engine(lambda: (prefetched(), other_calls()), world_size=2)
        assert job.results == [([2, 0], 0)] * 2


def test_who_runs_ahead_holds_nothing_either(monkeypatch):
    monkeypatch.setattr(ahead, "FROM", 1)
    assert simulate(other_calls, world_size=2).results == [0] * 2


# ---- what modes of the rank's own see -----------------------------------------------------------


class Listener(TorchDispatchMode):
    """Writes down every operator, and lets time pass in each: others have their turn."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        compute(1e-6 * (1 + dist.get_rank()))
        return func(*args, **(kwargs or {}))


class FunctionListener(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        # torch.distributed's own lines, as in a process, and the program's
        self.seen.append(getattr(func, "__name__", str(func)))
        compute(1e-6 * (1 + dist.get_rank()))
        return func(*args, **(kwargs or {}))


def calls(x, outs, inbox):
    """Every kind of call, without one operator of the program's own."""
    rank, n = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(x)
    dist.all_gather_single(outs[0], x)
    dist.reduce_scatter_single(x, outs[0])
    dist.all_to_all_single(outs[1], outs[0])
    dist.broadcast(x, 0)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    dist.all_reduce(x, async_op=True).get_future().wait()
    if dist.get_backend() == "gloo":
        works = [dist.isend(x, (rank + 1) % n), dist.irecv(inbox, (rank - 1) % n)]
        for work in works:
            work.wait()
    dist.barrier()


def listened(mode):
    n = dist.get_world_size()
    x, outs, inbox = torch.ones(8), [torch.ones(8 * n), torch.ones(8 * n)], torch.ones(8)
    with mode() as listener:
        calls(x, outs, inbox)
    return listener.seen


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_no_operator_of_ours_is_seen(backend):
    seen = simulate(listened, Listener, world_size=3, backend=backend).results
    # torch.distributed itself makes a tensor for its barrier
    assert {name for names in seen for name in names} <= {"aten.empty.memory_format"}


def test_no_function_of_ours_is_seen():
    of_torch = run(listened, FunctionListener, world_size=2).results[0]
    for backend in ("gloo", "nccl"):
        seen = simulate(listened, FunctionListener, world_size=2, backend=backend).results[0]
        assert set(seen) <= set(of_torch)


def on_another_device():
    with torch.device("meta"):
        inbox = torch.zeros(3, dtype=torch.float64, device="cpu")
        if dist.get_rank() == 0:
            dist.send(inbox + 2, 1)
        else:
            dist.irecv(inbox, 0).wait()
    return inbox.tolist()


def test_a_device_that_the_rank_has_chosen_is_not_ours():
    assert simulate(on_another_device, world_size=2).results[1] == [2.0] * 3


def test_the_graph_of_what_is_given_is_not_held():
    def program():
        weight = nn.Parameter(torch.ones(4))
        y = weight * 2
        alive = weakref.ref(y.untyped_storage())
        dist.all_reduce(y)
        del y
        return alive() is None

    assert simulate(program, world_size=2).results == [True, True]


def test_the_error_of_a_simulation_holds_no_tensor_of_a_rank(monkeypatch):
    def stands():
        x = torch.ones(4)
        builtins.alive.append(weakref.ref(x.untyped_storage()))  # which ranks share
        dist.all_reduce(x, async_op=True)
        if dist.get_rank() == 0:
            dist.barrier()

    monkeypatch.setattr(builtins, "alive", [], raising=False)
    with pytest.raises(CourseError) as error:
        simulate(stands, world_size=2, backend="nccl")
    gc.collect()
    assert error.value.run is not None
    assert {ref() for ref in builtins.alive} == {None}


def test_garbage_of_earlier_simulations_does_not_pile_up():
    class Cycle:
        pass

    def leave_garbage():
        cycle = Cycle()
        cycle.itself = cycle

    for _ in range(30):
        simulate(leave_garbage, world_size=2)
    assert sum(type(one).__name__ == "Cycle" for one in gc.get_objects()) < 20
