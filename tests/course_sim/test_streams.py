"""The modelled GPU: its times equal closed forms, and what hangs on NCCL is told."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from random_streams import differences
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from course_lib import (
    CourseError,
    Deadlock,
    Hazard,
    Mismatch,
    Network,
    RankFailed,
    compute,
    device,
    simulate,
    span,
)
from course_sim.costs import textbook_seconds
from course_sim.gpu.streams import LAUNCH, patches

LAYERS, WIDTH, FORWARD, BACKWARD, OPTIMIZER = 4, 128, 1e-3, 2e-3, 0.5e-3
ALPHA = 1e-5


def exactly(value):
    return pytest.approx(value, rel=1e-9, abs=1e-15)


def play(program, *args, n=2, bandwidth=1e9, **words):
    words = {"network": Network(ALPHA, bandwidth), "backend": "nccl"} | words
    return simulate(program, *args, world_size=n, **words)


def synchronize():
    torch.get_device_module(device()).synchronize()


# ---- when ---------------------------------------------------------------------------------------


def timed(look):
    x = torch.ones(1 << 20)
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    start = time.perf_counter()
    ends[0].record()
    compute(0.01)
    dist.all_reduce(x)
    ends[1].record()
    compute(0.01)
    looks = {"shape": lambda: x.shape, "item": x.sum().item, "if": lambda: bool(x[0] > 0)}
    (looks | {"synchronize": synchronize, "event": ends[1].synchronize})[look]()
    host = time.perf_counter() - start
    synchronize()
    return host, ends[0].elapsed_time(ends[1])


@pytest.mark.parametrize(
    ("look", "waits"),
    [("shape", None), ("synchronize", 0.02), ("item", 0.02), ("if", 0.02), ("event", 0.01)],
)
def test_the_host_waits_where_it_looks_and_nowhere_else(look, waits):
    reduced = textbook_seconds("all_reduce", 2, 4 << 20, ALPHA, 1e-9)
    run = play(timed, look)
    host = 3 * LAUNCH if waits is None else waits + reduced
    assert run.results == [exactly((host, 1e3 * (0.01 + reduced)))] * 2
    assert run.seconds == exactly(0.02 + reduced)
    assert [(e.called, e.issued, e.completed) for e in run.trace.events] == [
        exactly((LAUNCH, 0.01, 0.01 + reduced))
    ] * 2


def by_hand(overlapped):
    grads = [torch.full((WIDTH**2,), float(dist.get_rank())) for _ in range(LAYERS)]
    with span("forward"):
        for _ in grads:
            compute(FORWARD)
    works = []
    for grad in grads:
        compute(BACKWARD)
        works.append(dist.all_reduce(grad, async_op=True))
        if not overlapped:
            works[-1].wait()
    for work in works:
        work.wait()
    compute(OPTIMIZER)
    synchronize()
    return time.perf_counter()


class Busy(torch.autograd.Function):
    """Takes its time in forward, and in backward before what lies under it."""

    @staticmethod
    def forward(ctx, x):
        compute(FORWARD)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        compute(BACKWARD)
        return grad


class Layer(nn.Linear):
    def forward(self, x):
        return Busy.apply(super().forward(x))


def layers():
    return nn.Sequential(*[Layer(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])


def times_of_steps(model, steps):
    x = torch.full((2, WIDTH), float(dist.get_rank()))
    out = [0.0]
    synchronize()
    out[0] = time.perf_counter()
    for _ in range(steps):
        model(x).sum().backward()
        if isinstance(model, DistributedDataParallel):
            compute(OPTIMIZER)
        synchronize()
        out.append(time.perf_counter())
    return [after - before for before, after in pairwise(out)]


def with_ddp():
    model = DistributedDataParallel(layers(), bucket_cap_mb=4 * WIDTH**2 / 2**20)
    return times_of_steps(model, 4)


def overlapped_step(n, bandwidth):
    c = textbook_seconds("all_reduce", n, 4 * WIDTH**2, ALPHA, 1 / bandwidth)
    longer = max(LAYERS * BACKWARD + c, BACKWARD + LAYERS * c)
    return LAYERS * FORWARD + longer + OPTIMIZER, c


@pytest.mark.parametrize(("n", "bandwidth"), [(4, 15e6), (2, 4e9)])
def test_a_step_of_ddp_by_hand_and_of_torchs_takes_its_formula(n, bandwidth):
    """torch's from its third step on: the first is one bucket, the second sends new buckets."""
    step, c = overlapped_step(n, bandwidth)
    serial = LAYERS * (FORWARD + BACKWARD + c) + OPTIMIZER
    assert play(by_hand, True, n=n, bandwidth=bandwidth).results == [exactly(step)] * n
    assert play(by_hand, False, n=n, bandwidth=bandwidth).results == [exactly(serial)] * n
    for seconds in play(with_ddp, n=n, bandwidth=bandwidth).results:
        assert seconds[2:] == exactly([step] * 2)


def with_fsdp():
    model, mesh = layers(), init_device_mesh("cpu", (dist.get_world_size(),))
    for part in [*model, model]:
        fully_shard(part, mesh=mesh)
    return times_of_steps(model, 2)


def fsdp_step(blocks):
    """fully_shard's streams as a recursion: when communication and computing have come so far."""
    communicated = computed = 0.0
    copied = [0.0] * LAYERS  # when a layer's weights are copied out of what was gathered
    for i in range(LAYERS):
        communicated = max(communicated, copied[i - 2] if i > 1 else 0.0) + blocks
        copied[i] = max(computed, communicated)
        computed = copied[i] + FORWARD
    gathered = max(communicated, copied[-1]) + blocks  # the last layer once more, for backward
    communicated, scattered = gathered, 0.0
    for i in reversed(range(LAYERS)):
        out = max(computed, gathered)
        if i:  # the next one is prefetched
            communicated = gathered = max(communicated, out) + blocks
        computed = max(out + BACKWARD, scattered)  # one reduce-scatter's input is kept, no more
        communicated = scattered = max(communicated, computed) + blocks
    return max(computed, scattered)


@pytest.mark.parametrize(("n", "bandwidth"), [(4, 10e6), (8, 8e9)])
def test_a_step_of_fully_shard_takes_what_its_streams_take(n, bandwidth):
    blocks = textbook_seconds("all_gather", n, 4 * WIDTH**2, ALPHA, 1 / bandwidth)
    run = play(with_fsdp, n=n, bandwidth=bandwidth)
    assert run.results == [exactly([fsdp_step(blocks)] * 2)] * n
    assert fsdp_step(blocks) < LAYERS * (FORWARD + BACKWARD + 3 * blocks)


def test_random_programs_take_what_they_take_by_hand():
    assert [found for seed in range(10) for found in differences(seed)] == []


def barriers():
    compute(0.01 * (1 + dist.get_rank()))
    dist.barrier()
    return time.perf_counter()


def optimizer_looks():
    weight = nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)
    compute(0.01)
    torch.optim.Adam([weight]).step()
    return time.perf_counter()


def polls():
    work = dist.all_reduce(torch.ones(2), async_op=True)
    while not work.is_completed():
        pass
    return time.perf_counter()


@pytest.mark.parametrize(
    ("program", "seconds"),
    [(barriers, 0.02 + ALPHA), (optimizer_looks, LAUNCH), (polls, LAUNCH + 6e-6)],
)
def test_what_the_clock_of_the_host_shows(program, seconds):
    for result in play(program).results:
        assert result == pytest.approx(seconds, rel=1e-3)


def test_everything_is_put_back():
    def found():
        return [vars(owner).get(name) for owner, name, _ in patches()]

    before = found()
    play(barriers)
    assert all(a is b for a, b in zip(before, found(), strict=True))


def in_streams():
    """One call after another, in each kind of stream."""
    x, side = torch.ones(1 << 20), torch.cuda.Stream()
    compute(0.01)
    dist.all_reduce(x)
    works = [dist.all_reduce(x, async_op=True)]
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.current_stream())
        dist.all_reduce(x)
    pair = [dist.P2POp(op, x.clone(), 1 - dist.get_rank()) for op in (dist.isend, dist.irecv)]
    for work in [*works, *dist.batch_isend_irecv(pair)]:
        work.wait()
    dist.send(x, 1) if dist.get_rank() == 0 else dist.recv(x, 0)
    synchronize()


def test_a_call_runs_in_the_current_stream_and_an_asynchronous_one_in_the_communicators():
    run = play(in_streams)
    for rank in range(2):
        events = run.trace.of(rank)
        beside = "communicator"
        assert [e.stream for e in events] == ["compute", beside, "side 1", beside, beside, beside]
        ends = [e.completed for e in events[:3]]
        assert [e.issued for e in events[:3]] == [exactly(t) for t in (0.01, *ends[:2])]
    assert all(e.stream is None for e in simulate(barriers, world_size=2).trace.events)


# ---- what hangs, and what luck hides ------------------------------------------------------------


def ring(batched=False, left_out=-1):
    rank, n = dist.get_rank(), dist.get_world_size()
    x, inbox = torch.full((4,), float(rank)), torch.empty(4)
    ops = [(dist.isend, x, (rank + 1) % n), (dist.irecv, inbox, (rank - 1) % n)]
    if batched and rank != left_out:
        works = dist.batch_isend_irecv([dist.P2POp(*op) for op in ops])
        assert len(works) == 1
    else:
        works = [op(tensor, peer) for op, tensor, peer in ops if rank != left_out]
    for work in works:
        work.wait()
    return inbox[0].item()


def skips_a_batch():
    ring(batched=True, left_out=1)


def crossed():
    groups = [dist.new_group(), dist.new_group()]
    x = torch.ones(4)
    for group in groups[:: 1 - 2 * dist.get_rank()]:
        dist.all_reduce(x, group=group)


def looks_at_a_hang():
    """It never waits for its Work: synchronize() does."""
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(4), async_op=True)
        torch.cuda.synchronize()  # stands here


def tags_crossed():
    rank, x = dist.get_rank(), [torch.ones(2), torch.ones(2)]
    tags = (2, 1) if rank else (1, 2)
    ops = [
        dist.P2POp(dist.irecv if rank else dist.isend, x[tag - 1], 1 - rank, tag=tag)
        for tag in tags
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def any_source():
    dist.send(torch.ones(1), 1) if dist.get_rank() == 0 else dist.recv(torch.ones(1))


def bitwise():
    dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.BAND)


@pytest.mark.parametrize(
    ("program", "args", "error", "told"),
    [
        (ring, (), Deadlock, "stands behind isend(dst=0). Start them together: dist.batch_isend"),
        (skips_a_batch, (), Deadlock, "for rank 1, which has already returned"),
        (crossed, (), Deadlock, "use these groups in different order"),
        (looks_at_a_hang, (), Deadlock, "torch.cuda.synchronize()  # stands here"),
        (tags_crossed, (), Mismatch, "NCCL ignores tags"),
        (any_source, (), Mismatch, "recv(x, src)"),
        (bitwise, (), RankFailed, "Cannot use ReduceOp.BAND with NCCL"),
    ],
)
def test_what_nccl_does_not_do_is_told_with_the_way_out(program, args, error, told):
    with pytest.raises(error) as caught:
        play(program, *args)
    assert told in str(caught.value)


def test_an_unbatched_ring_is_told_with_what_the_model_assumes():
    with pytest.raises(Deadlock, match="'nccl-lazy' makes one for each pair of ranks"):
        play(ring, n=3)


def test_a_ring_in_batches_goes_round():
    n = 3
    assert play(ring, True, n=n).results == [float((r - 1) % n) for r in range(n)]


def sum_and(use):
    x = torch.full((4,), float(dist.get_rank() + 1))
    work = dist.all_reduce(x, async_op=True)
    early = {"read": x[0].item, "write": lambda: x.mul_(0.5), "forget": int}[use]()
    if use != "forget":
        work.wait()
    return early


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize(
    ("use", "kind"),
    [
        ("read", "read before wait"),
        ("write", "written before wait"),
        ("forget", "never waited for"),
    ],
)
def test_a_sum_that_is_used_too_early_is_found(backend, use, kind):
    with pytest.raises(Hazard) as caught:
        play(sum_and, use, backend=backend)
    assert caught.value.kind == kind and "all_reduce(x, async_op" in caught.value.line.source


def twice(x):
    works = [dist.all_reduce(x, async_op=True) for _ in range(2)]
    for work in works:
        work.wait()


def plain_call_behind(x):
    dist.all_reduce(x, async_op=True)
    dist.all_reduce(torch.ones(2))


def parts_of_one(x):
    dist.all_reduce(x[:3], async_op=True)
    dist.all_reduce(x[2:], async_op=True).wait()


def looked_at(program):
    x = torch.full((4,), float(dist.get_rank() + 1))
    program(x)
    return x.tolist()


@pytest.mark.parametrize(
    ("program", "result"),
    [(twice, [6.0] * 4), (plain_call_behind, [3.0] * 4), (parts_of_one, [3.0, 3.0, 6.0, 3.0])],
)
def test_one_communicator_keeps_the_order_of_its_calls_and_gloo_does_not(program, result):
    assert play(looked_at, program).results[0] == result
    with pytest.raises(Hazard):
        play(looked_at, program, backend="gloo")


def in_two_groups(x):
    works = [dist.all_reduce(x, group=group, async_op=True) for group in (None, dist.new_group())]
    for work in works:
        work.wait()


def read_before_the_last(x):
    dist.all_reduce(x, async_op=True)
    total = x.sum()
    dist.all_reduce(torch.ones(2), async_op=True).wait()
    x.fill_(total.item())


def nobody_waits(x):
    dist.all_reduce(x, async_op=True)


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (in_two_groups, "written before wait"),
        (read_before_the_last, "read before wait"),
        (nobody_waits, "never waited for"),
    ],
)
def test_what_no_communicator_orders_is_found(program, kind, backend):
    with pytest.raises(Hazard) as caught:
        play(looked_at, program, backend=backend)
    if backend == "nccl" or program is not read_before_the_last:
        assert caught.value.kind == kind
    said = "makes the current stream wait" in str(caught.value)
    assert said == (backend == "nccl" and program is nobody_waits)


def test_a_backend_that_is_not_modelled_is_refused():
    with pytest.raises(CourseError, match="choose 'gloo' or 'nccl'"):
        play(barriers, backend="mpi")
