"""A right program gives the same in the simulator as on real ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from random_programs import execute_all, make_program
from torch.nn.parallel import DistributedDataParallel

from course_lib import run
from course_sim import simulate
from course_sim.tensor_memory import equal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("n", [2, 3, 4])
def test_random_programs_give_the_same_values(n):
    programs = [p for p in map(make_program, range(60)) if p["n"] == n][:12]
    real = run(execute_all, programs, world_size=n, record=False)
    simulated = simulate(execute_all, programs, world_size=n)
    assert equal(real.results, simulated.results)
    buffered = simulate(execute_all, programs, world_size=n, buffered=True, seed=3)
    assert equal(real.results, buffered.results)


def without_times(event):
    return replace(event, issued=0.0, completed=None)


def every_kind_of_call():
    n, rank = dist.get_world_size(), dist.get_rank()
    x = torch.ones(4)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    dist.broadcast(x, 1)
    dist.reduce(x, 1)
    dist.all_gather([torch.zeros(4) for _ in range(n)], x)
    dist.all_gather_single(torch.zeros(4 * n), x)
    dist.gather(x, [torch.zeros(4) for _ in range(n)] if rank == 0 else None, 0)
    dist.scatter(x, [torch.zeros(4) for _ in range(n)] if rank == 0 else None, 0)
    dist.reduce_scatter(x, [torch.zeros(4) for _ in range(n)])
    dist.reduce_scatter_single(x, torch.zeros(4 * n))
    dist.all_to_all([torch.zeros(4) for _ in range(n)], [torch.zeros(4) for _ in range(n)])
    dist.all_to_all_single(torch.zeros(2 * n), torch.zeros(2 * n))
    dist.barrier()
    dist.all_reduce(x, async_op=True).wait()
    if rank == 0:
        dist.send(x, 1, tag=3)
        dist.isend(x, 1).wait()
    elif rank == 1:
        dist.recv(x, 0, tag=3)
        dist.irecv(x, 0).wait()


def test_the_trace_says_what_the_recorder_says():
    real = run(every_kind_of_call, world_size=3).trace
    simulated = simulate(every_kind_of_call, world_size=3).trace
    for rank in range(3):
        events = (map(without_times, trace.of(rank)) for trace in (simulated, real))
        assert list(next(events)) == list(next(events))
    assert simulated.groups == real.groups


def every_other_call():
    """What stands beside the plain calls: objects, coalesced and functional ones, the methods of a
    group, and what DDP and FSDP2 issue.
    """
    import torch.distributed._functional_collectives as functional
    import torch.distributed.nn.functional as differentiable
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    n, rank, world = dist.get_world_size(), dist.get_rank(), dist.group.WORLD
    root, x = rank == 0, torch.arange(4.0) + rank
    x_n, xs = torch.arange(4.0 * n) + rank, [torch.arange(4.0) + k for k in range(n)]
    give, take = (
        dist.P2POp(dist.isend, x, (rank + 1) % n),
        dist.P2POp(dist.irecv, xs[0], (rank - 1) % n),
    )
    for work in dist.batch_isend_irecv([give, take]):
        work.wait()
    objects = [None] * n
    dist.all_gather_object(objects, rank)
    dist.gather_object(rank, objects if root else None)
    dist.broadcast_object_list(objects)
    dist.scatter_object_list([None], objects if root else None)
    dist.new_subgroups(1)
    dist.all_gather_into_tensor(x_n, x)
    dist.reduce_scatter_tensor(xs[1], x_n)
    dist.all_reduce_coalesced([x, xs[2]])
    dist.all_gather_coalesced([[torch.zeros(4), torch.zeros(4)] for _ in range(n)], [x, xs[1]])
    for call in (
        lambda: world.broadcast(x, 1),
        lambda: world.allreduce(x),
        lambda: world.allreduce([x], dist.ReduceOp.MAX),
        lambda: world.reduce(x + 0, 0),
        lambda: world.allgather([xs], [x]),
        lambda: world.allgather(xs, x),
        lambda: world.gather(xs if root else [], x, 0),
        lambda: world.scatter(x, xs if root else [], 0),
        lambda: world.reduce_scatter(x, xs),
        lambda: world.alltoall(xs, [x] * n),
        lambda: world.all_gather_single(x_n, x),
        lambda: world.all_to_all_single(torch.zeros(4 * n), x_n, [], []),
        world.barrier,
        lambda: world.allreduce_coalesced([x]),
        lambda: world._reduce_scatter_base(x, x_n),
    ):
        call().wait()
    out = [
        functional.broadcast(x, 1, world),
        functional.all_reduce(x, "avg", world),
        functional.all_gather_single(x, 0, world),
        functional.reduce_scatter_single(x_n.view(2, -1), "sum", 1, world),
        functional.all_to_all_single(x_n, None, None, world),
        *functional.all_reduce_coalesced([x, x_n], "sum", world),
        *functional.all_gather_single_coalesced([x, x_n], world),
        *functional.reduce_scatter_single_coalesced([x_n, x_n * 2], "sum", [0, 0], world),
    ]
    out = [t + 0 for t in out]  # waits
    for call in (
        lambda t: differentiable.all_reduce(t * rank),
        lambda t: differentiable.broadcast(t * rank, 1),
        lambda t: torch.cat(differentiable.all_gather(t)) * x_n,
        lambda t: differentiable.reduce_scatter(torch.zeros(4), [t * k for k in range(n)]),
        lambda t: functional.all_reduce(t * rank, "sum", world),
        lambda t: functional.all_gather_single_autograd(t, 0, world) * x_n,
        lambda t: functional.reduce_scatter_single_autograd(t.repeat(n) * x_n, "sum", 0, world),
        lambda t: functional.all_to_all_single_autograd(t.repeat(n) * x_n, None, None, world),
    ):
        t = (x + 1).requires_grad_()
        (y := call(t) + 0).sum().backward()
        out += [y.detach(), t.grad]
    layers = [torch.nn.Linear(4, 4) for _ in range(2)]
    mesh = init_device_mesh("cpu", (n,))
    fully_shard(layers[0], mesh=mesh)
    for model in (layers[0], DistributedDataParallel(layers[1])):
        model(x).sum().backward()
    return [*out, x, x_n, *xs, torch.tensor(objects)]


def test_other_calls_have_one_name_and_one_value():
    real, simulated = (f(every_other_call, world_size=3) for f in (run, simulate))
    for rank in range(3):
        names = [Counter(e.op for e in r.trace.of(rank)) for r in (real, simulated)]
        assert names[0] == names[1]
    assert equal(real.results, simulated.results)


def sum_and_gradient():
    import torch.distributed.nn.functional as differentiable

    x = torch.ones(2, requires_grad=True)
    y = differentiable.all_reduce(x * (dist.get_rank() + 1))
    y.sum().backward()
    return y.tolist(), x.grad.tolist()


def test_what_torch_binds_on_import_works_each_time():
    """``group=dist.group.WORLD`` as a parameter, in a module of torch's."""
    for n in (2, 2, 3):
        want = [([n * (n + 1) / 2] * 2, [n * (r + 1.0)] * 2) for r in range(n)]
        assert simulate(sum_and_gradient, world_size=n).results == want


def refused():
    """The bad calls that are refused; each rank sees for itself."""
    n, rank, other = dist.get_world_size(), dist.get_rank(), (dist.get_rank() + 1) % 3
    x, short = torch.ones(4), torch.ones(4, dtype=torch.int16)
    uneven, square = [torch.ones(4 + k) for k in range(n)], [torch.ones(2, 2) for _ in range(n)]
    flat, many = torch.ones(4 * n), [torch.ones(4) for _ in range(n)]
    calls = {
        "all_gather, uneven": lambda: dist.all_gather(uneven, uneven[rank]),
        "all_gather, too few": lambda: dist.all_gather(many[1:], x),
        "all_gather_single, stacked": lambda: dist.all_gather_single(torch.ones(n, 4), x),
        "all_gather_single, dtype": lambda: dist.all_gather_single(flat.int(), x),
        "reduce_scatter, another shape": lambda: dist.reduce_scatter(x, square),
        "all_to_all, uneven": lambda: dist.all_to_all(uneven, uneven),
        "all_to_all_single, indivisible": lambda: dist.all_to_all_single(x, x),
        "all_to_all_single, sizes": lambda: dist.all_to_all_single(flat, flat, [4] * 3, [3, 4, 4]),
        "all_to_all_single, strided": lambda: dist.all_to_all_single(flat[::2], flat[::2]),
        "broadcast from nobody": lambda: dist.broadcast(x, -1),
        "all_reduce int16": lambda: dist.all_reduce(short),
        "AVG of integers": lambda: dist.all_reduce(x.int(), dist.ReduceOp.AVG),
        "BAND of floats": lambda: dist.all_reduce(x, dist.ReduceOp.BAND),
        "gather_single": lambda: dist.gather_single(x, flat if rank == 0 else None, 0),
        "send with a negative tag": lambda: dist.send(x, other, tag=-1),
        "recv from itself": lambda: dist.irecv(x, rank),
        "send to nobody": lambda: dist.send(x, n),
        "group of nobody": lambda: dist.new_group([]),
        # and what is well: gloo takes it
        "all_reduce, another shape": lambda: dist.all_reduce(flat.view((2, 6) if rank else (3, 4))),
        "reduce_scatter, uneven": lambda: dist.reduce_scatter(uneven[rank], uneven),
        "all_reduce_coalesced, strided": lambda: dist.all_reduce_coalesced([flat[::2]]),
        "reduce_scatter_single, 2-d": lambda: dist.reduce_scatter_single(
            torch.ones(1, 4), torch.ones(n, 4)
        ),
    }
    out = []
    for name, call in calls.items():
        try:
            call()
        except Exception:
            out.append(name)
    return out


def test_what_is_refused_is_refused_by_both():
    real, simulated = (f(refused, world_size=3).results for f in (run, simulate))
    assert simulated == real and len(real[0]) == 18


def sparse_sums():
    """Each rank fills another element, and one that is everybody's."""
    rank, n = dist.get_rank(), dist.get_world_size()
    x = torch.sparse_coo_tensor([[0, rank + 1]], [1.0, 2.0], (n + 1,))
    dist.all_reduce(x)
    y = torch.eye(n).to_sparse()
    dist.all_reduce(y, async_op=True).wait()
    return x.to_dense().tolist(), y.to_dense().tolist()


def complex_values():
    n, x = dist.get_world_size(), torch.full((2,), complex(dist.get_rank(), 1))
    dist.broadcast(a := x.clone(), 1)
    dist.reduce(b := x.clone(), 0)
    dist.all_gather(c := [torch.empty_like(x) for _ in range(n)], x)
    dist.reduce_scatter(d := torch.empty_like(x), [x + k for k in range(n)])
    dist.all_to_all_single(e := torch.empty_like(x), x)
    dist.send(x, 1) if dist.get_rank() == 0 else dist.recv(x, 0)
    return [t.tolist() for t in (a, *([] if dist.get_rank() else [b]), *c, d, e, x)]


@pytest.mark.parametrize("program", [sparse_sums, complex_values])
def test_tensors_that_are_not_plain_give_the_same_values(program):
    real, simulated = (f(program, world_size=2) for f in (run, simulate))
    assert real.results == simulated.results
    seen = [[(e.op, e.shape, e.nbytes) for e in job.trace.of(0)] for job in (real, simulated)]
    assert seen[0] == seen[1]


def refused_kinds(kind):
    """What each call says of such a tensor."""
    x = torch.eye(4).to_sparse()
    if kind == "quantized":
        x = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)
    elif kind == "nested":
        x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    rank, n, out = dist.get_rank(), dist.get_world_size(), []
    calls = [
        lambda: dist.broadcast(x, 0),
        lambda: dist.isend(x, 1 - rank),
        lambda: dist.irecv(x, 1 - rank),
        lambda: dist.scatter(x, None if rank else [x] * n),
        lambda: dist.all_gather_single(x, x),
    ]
    for call in calls:
        try:
            call()
        except Exception as error:
            out.append(f"{type(error).__name__}: {error}")
    return out


@pytest.mark.parametrize("kind", ["sparse", "quantized", "nested"])
def test_a_tensor_that_gloo_does_not_take_is_refused_in_a_line(kind):
    told = simulate(refused_kinds, kind, world_size=2).results[0]
    assert len(told) == 5
    assert all(f"of a {kind} tensor: communicate " in text for text in told), told


def train(hook=None):
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 2))
    )
    if hook:
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(4):
        loss = model(torch.randn(4, 8, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.parameters()]


def in_half_precision(state, bucket):
    small = bucket.buffer().div(dist.get_world_size()).bfloat16()
    future = dist.all_reduce(small, async_op=True).get_future()
    return future.then(lambda f: bucket.buffer().copy_(f.value()[0]))


def test_ddp_trains_the_same_model():
    real, simulated = (f(train, in_half_precision, world_size=2).results for f in (run, simulate))
    for (losses, parameters), (their_losses, theirs) in zip(real, simulated, strict=True):
        assert losses == pytest.approx(their_losses)
        assert all(torch.allclose(a, b) for a, b in zip(parameters, theirs, strict=True))


@pytest.mark.parametrize("engine", [run, simulate])
def test_a_short_timeout_that_the_program_catches_is_no_deadlock(engine):
    def who_is_there():
        second = timedelta(seconds=1)
        group = dist.new_group(timeout=second)
        calls = (
            lambda: dist.monitored_barrier(timeout=second),
            lambda: dist.all_reduce(torch.zeros(1), group=group),
            lambda: dist.recv(torch.zeros(1), 1, group=group),
        )
        said = []
        for call in calls if dist.get_rank() == 0 else ():
            try:
                call()
            except RuntimeError:
                said.append("nobody came")
        return said

    assert engine(who_is_there, world_size=2).results == [["nobody came"] * 3, []]


@pytest.mark.parametrize("engine", [run, simulate])
def test_however_a_group_gets_a_short_timeout_its_calls_keep_to_it(engine):
    def barrier():
        short = timedelta(seconds=1)
        dist.init_process_group("gloo", timeout=short)
        group = dist.split_group(split_ranks=[[0, 1]], timeout=short)
        if dist.get_rank() == 0:
            for called in (group, None):
                with pytest.raises(RuntimeError):
                    dist.barrier(called)
        return "went on"

    assert engine(barrier, world_size=2, init=False).results == ["went on"] * 2


@pytest.mark.parametrize("engine", [run, simulate])
def test_ranks_may_make_groups_of_themselves_alone(engine):
    def inner():
        mine, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
        alone, _ = dist.new_subgroups(group_size=1, group=mine)
        return alone.size()

    assert engine(inner, world_size=4).results == [1, 1, 1, 1]
