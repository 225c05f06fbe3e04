"""Runs at their true size: shapes in place of values, each kernel charged, some ranks for all."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import pipelining
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from course_lib import (
    GPU,
    CourseError,
    Deadlock,
    Mismatch,
    Network,
    RankFailed,
    count_memory,
    device,
    draw,
    simulate,
    span,
)
from course_sim.true_size import arguments

ROUND = GPU(  # figures that one can reckon with
    flops={"float32": 2e12, "bfloat16": 4e12},
    memory=2**30,
    bandwidth=1e12,
    matmul_efficiency=0.5,
    attention_efficiency=0.25,
    memory_efficiency=0.5,
    launch=1e-9,
)
SLOW = GPU(flops={"float32": 1e12, "bfloat16": 1e12}, memory=2**30, bandwidth=1e10)  # never idle
TWO_NODES = Network.cluster(4, 2, Network(1e-6, 100e9), Network(5e-6, 20e9))


def sized(fn, *args, world_size=1, gpu=ROUND, **more):
    return simulate(fn, *args, world_size=world_size, backend="nccl", gpu=gpu, **more)


# ---- what a kernel takes ------------------------------------------------------------------------


def by_kind(fn):
    run = sized(fn)
    return {kind.name: kind for kind in run.kernels[0].kinds}


def test_a_matrix_product_takes_its_flops_at_the_peak_of_its_dtype():
    def multiply():
        for dtype in (torch.float32, torch.bfloat16):
            a = torch.empty(1024, 512, dtype=dtype)
            a @ torch.empty(512, 256, dtype=dtype)

    kind = by_kind(multiply)["matrix products"]
    flops = 2 * 1024 * 512 * 256
    assert (kind.number, kind.flops) == (2, 2 * flops)
    assert kind.seconds == pytest.approx(flops / 1e12 + flops / 2e12)


def test_a_thin_product_takes_the_bytes_of_its_matrix():
    kind = by_kind(lambda: len(torch.empty(1, 1000) @ torch.empty(1000, 1000)))["matrix products"]
    assert kind.seconds == pytest.approx(4 * (1_000_000 + 2_000) / 0.5e12)


def test_other_kernels_take_the_bytes_that_they_read_and_write():
    def several():
        x, y = torch.empty(1000), torch.empty(1000)
        x + y  # reads two, writes one
        x.mul_(y)  # reads two, writes one of them
        x.copy_(y)  # reads one, overwrites the other
        x.expand(50, 1000).clone()  # reads each element once
        x.view(10, 100).t()[2:]  # nothing
        torch._foreach_neg_([x, y])

    kinds = by_kind(several)
    got = {name: kind.nbytes // 4000 for name, kind in kinds.items()}
    assert got == {"add": 3, "mul": 3, "copy": 2, "clone": 51, "foreach_neg": 4}
    assert kinds["add"].seconds == pytest.approx(12_000 / 0.5e12)


def test_causal_attention_does_half_of_the_work():
    def attend(causal):
        q, k, v = (torch.empty(1, 4, 256, 64) for _ in range(3))
        F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    whole, half = (sized(attend, causal).kernels[0].kinds[0] for causal in (False, True))
    assert whole.name == "attention"
    assert whole.flops == 2 * half.flops == 2 * 2 * 4 * 256 * 256 * 64
    assert whole.seconds == pytest.approx(2 * half.seconds) == pytest.approx(whole.flops / 0.5e12)


def test_the_host_hands_out_kernels_that_are_too_small_for_the_gpu():
    def many():
        x = torch.empty(8)
        for _ in range(100):
            x.add_(1)

    assert sized(many, gpu=GPU.h100()).seconds == pytest.approx(100 * 5e-6)


def test_what_decomposes_on_its_first_call_is_one_kernel_all_the_same():
    shape = 3, 5, 7  # which no other test has made known
    first, again = (sized(lambda: len(F.silu(torch.empty(shape)))) for _ in range(2))
    assert first.seconds == again.seconds
    assert first.kernels[0].total.number == again.kernels[0].total.number == 1


def test_figures_are_above_zero_and_efficiencies_at_most_one():
    with pytest.raises(ValueError, match=r"GPU\(bandwidth=0\): give a number above 0"):
        GPU.h100(bandwidth=0)
    with pytest.raises(ValueError, match="at most 1"):
        GPU.h100(matmul_efficiency=62)
    assert GPU.h100(memory=96 * 2**30).memory == 96 * 2**30
    assert GPU.h100().flops["bfloat16"] > GPU.a100().flops["bfloat16"]
    assert GPU.h200().flops == GPU.h100().flops


# ---- one rank for all ---------------------------------------------------------------------------


def make_model(layers=2, d=256):
    def block():
        return nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.LayerNorm(d))

    return nn.Sequential(*[block() for _ in range(layers)])


def train(model, optimizer):
    inputs = torch.randn(512, 256)
    for _ in range(2):
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def shard(model, mesh=None):
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def with_fully_shard():
    with torch.device("meta"):
        model = make_model()
    shard(model)
    model.to_empty(device=device())
    train(model, torch.optim.AdamW(model.parameters(), fused=True))
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return dist.get_rank() + 1


def with_data_and_pipeline():
    """Stages of four ranks each: one stage is the first half of the ranks."""
    rank, n = dist.get_rank(), dist.get_world_size()
    first, stages = rank < n // 2, [list(range(n // 2)), list(range(n // 2, n))]
    replicas = [dist.new_group(stage) for stage in stages][not first]
    model, other = make_model(2), (rank + n // 2) % n
    for _ in range(4):
        inputs = torch.randn(512, 256)
        if not first:
            dist.recv(inputs.requires_grad_(), src=other)
        outputs = model(inputs)
        if first:
            dist.send(outputs.detach(), dst=other)
            gradient = torch.empty_like(outputs)
            dist.recv(gradient, src=other)
            outputs.backward(gradient)
        else:
            outputs.sum().backward()
            dist.send(inputs.grad, dst=other)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=replicas)
    return rank + 1


def with_torchs_pipeline():
    stage = pipelining.PipelineStage(
        make_model(1), dist.get_rank(), dist.get_world_size(), device(), group=dist.group.WORLD
    )
    schedule = pipelining.Schedule1F1B(stage, 4, loss_fn=lambda outputs, _: outputs.sum())
    data = torch.empty(64, 256)
    given = [data] if stage.is_first else []
    schedule.step(*given, **({"target": data} if stage.is_last else {}))


def exchange_experts():
    n = dist.get_world_size()
    rows, weight = torch.empty(64 * n, 128), torch.empty(128, 128, requires_grad=True)
    mine = torch.empty_like(rows)
    dist.all_to_all_single(mine, rows, [64] * n, [64] * n)
    done = functional.all_to_all_single_autograd(mine @ weight, None, None, dist.group.WORLD)
    done.sum().backward()
    return dist.get_rank() + 1


ALIKE = [
    (4, with_fully_shard, [3], TWO_NODES),
    (8, with_data_and_pipeline, [0, 4], Network(1e-6, 20e9)),  # a link for each rank
    (8, exchange_experts, [0], TWO_NODES),
]


@pytest.mark.parametrize(("n", "fn", "play", "network"), ALIKE)
def test_one_rank_takes_as_long_as_all_that_do_the_same(n, fn, play, network):
    every, some = (
        sized(fn, world_size=n, gpu=SLOW, network=network, play=ranks) for ranks in (None, play)
    )
    assert some.seconds == every.seconds > 0
    assert [r for r, result in enumerate(some.results) if result] == play
    for rank in play:
        assert some.memory.by_rank[rank] == every.memory.by_rank[rank]
        assert some.kernels[rank].kinds == every.kernels[rank].kinds
        assert [e.nbytes for e in some.trace.of(rank)] == [e.nbytes for e in every.trace.of(rank)]
    assert {event.rank for event in some.trace.events} == {*some.kernels} == {*play}


def test_a_pipeline_of_torchs_own_takes_its_bubble():
    run = sized(with_torchs_pipeline, world_size=3, gpu=SLOW)
    busy = max(kernels.total.seconds for kernels in run.kernels.values())
    assert busy * (4 + 2) / 4 < run.seconds < 1.2 * busy * (4 + 2) / 4


def test_a_tensor_without_values_cannot_be_returned():
    with pytest.raises(RankFailed, match=r"rank 0 returned a FakeTensor.*: return plain data"):
        sized(lambda: torch.empty(3))


def test_a_message_to_a_rank_that_is_not_played_is_refused_in_one_line():
    def send():
        dist.send(torch.empty(3), dst=2)

    with pytest.raises(CourseError) as caught:
        sized(send, world_size=4, play=[0])
    text = str(caught.value)
    assert text.startswith("rank 0 calls send(dst=2), and rank 2 is not played: say play=[0, 2].")
    assert "dist.send(torch.empty(3), dst=2)" in text
    assert "\n" not in text


def test_ranks_that_are_said_to_be_alike_and_part_ways_are_a_mismatch():
    def part_ways():
        x = torch.empty(4)
        dist.all_reduce(x) if dist.get_rank() < 4 else dist.broadcast(x, 0)

    with pytest.raises(Mismatch, match="ranks 0 and 4 do not agree on the op"):
        sized(part_ways, world_size=8, play=[0, 4])


def test_a_collective_waits_for_played_ranks_alone():
    def one_leaves():
        if dist.get_rank() == 0:
            dist.barrier()

    with pytest.raises(Deadlock, match="rank 0 waits for rank 4, which has already returned"):
        sized(one_leaves, world_size=8, play=[0, 4])


# ---- no values ----------------------------------------------------------------------------------

ASKING = {
    "item": lambda x: x.sum().item(),
    "if": lambda x: 1 if x.sum() > 3 else 2,
    "print": print,
    "mask": lambda x: x[x > 0],
    "object": lambda x: dist.broadcast_object_list([x.shape]),
}


@pytest.mark.parametrize("name", ASKING)
def test_who_asks_for_a_value_is_told_in_one_line(name):
    ask = ASKING[name]

    def look():
        ask(torch.ones(4))

    with pytest.raises(CourseError) as caught:
        sized(look, world_size=2, play=[1])
    text = str(caught.value)
    assert text.startswith("rank 1 asks for a value, by ")
    assert "tensors have shapes alone" in text
    assert "test_true_size.py, line " in text
    assert "\n" not in text


def test_a_number_that_the_program_names_keeps_its_value_and_so_does_what_is_passed_in():
    def named(given):
        step = torch.tensor(0.0)
        step += 1
        return step.item(), given.sum().item(), (given * torch.empty(3)).shape

    assert sized(named, torch.arange(3.0)).results == [(1.0, 3.0, (3,))]


def test_what_is_passed_in_cannot_be_summed():
    with pytest.raises(RankFailed, match="all_reduce of a tensor with values, which no coll"):
        sized(dist.all_reduce, torch.arange(3.0), world_size=2)


def say_cuda(look):
    """A script for GPUs: it says "cuda", and a line of its log asks for a value."""
    torch.cuda.set_device(dist.get_rank())
    inner = make_model().cuda()
    model = DistributedDataParallel(inner, device_ids=[dist.get_rank()])
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(torch.randn(512, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    look(loss)
    drawn = torch.randint(5, (4,))  # as a loader does
    assert len(drawn.tolist()) == 4
    assert drawn.cuda()[:2].shape == (2,)
    assert torch.empty(2, device="meta").device.type == "meta"
    return str(loss.device), str(inner[0][0].weight.grad.device)


def log(loss):
    print(f"{loss:.2f} {loss.item() / 2:.1f} {round(loss.item(), 1)}")


def test_a_script_that_says_cuda_runs_at_its_true_size():
    run = sized(say_cuda, log, world_size=2, cuda=True)
    assert run.results == [("cuda:0", "cuda:0"), ("cuda:1", "cuda:1")]
    told = "[0] tensors have no values here: what item() is asked for is given as 1.0"
    assert run.output.splitlines()[:2] == [told, "[0] 1.00 0.5 1.0"]
    kinds = {kind.name: kind for kind in run.kernels[0].kinds}
    assert kinds["matrix products"].number == 4 + 7  # forward and backward
    assert "foreach_addcdiv" in kinds


def test_a_script_that_decides_by_a_value_is_told_its_line():
    def decide(loss):
        return 1 if loss.item() < 2 else 3

    with pytest.raises(CourseError, match=r"rank 0 asks for a value, by .*true_size.py, line"):
        sized(say_cuda, decide, world_size=1, cuda=True)


def lose_in_parallel(mesh_size):
    mesh = init_device_mesh("cpu", (mesh_size,))
    out = nn.Linear(64, 4096)
    parallelize_module(out, mesh, ColwiseParallel(use_local_output=False))
    for _ in range(2):
        with loss_parallel():
            loss = F.cross_entropy(out(torch.empty(32, 64)), torch.zeros(32, dtype=torch.long))
            loss.backward()
            dist.barrier()


def test_several_played_ranks_may_be_inside_of_loss_parallel():
    every, one = (sized(lose_in_parallel, 2, world_size=2, play=ranks) for ranks in (None, [0]))
    assert every.seconds == one.seconds > 0


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"gpu": "h100"}, "gpu='h100': give a GPU, as GPU.h100"),
        ({"gpu": GPU.h100(), "backend": "gloo"}, "gpu=…: .* say backend='nccl'"),
        ({"play": [0]}, "play=.0.: .* say gpu=GPU.h100"),
        ({"gpu": GPU.h100(), "play": [4]}, "play=.4.: give one or more ranks, 0 to 3"),
    ],
)
def test_bad_arguments_get_one_line(more, text):
    with pytest.raises(CourseError, match=text) as caught:
        simulate(time.time, **{"world_size": 4, "backend": "nccl"} | more)
    assert "\n" not in str(caught.value)


# ---- memory, and what is shown ------------------------------------------------------------------


def test_memory_is_what_count_memory_counts_with_and_without_values():
    def step():
        mesh = init_device_mesh("cpu", (4,))  # its list of ranks lies on the host
        with count_memory() as memory:
            with torch.device("meta"):
                model = make_model()
            shard(model, mesh)
            model.to_empty(device=device())
            train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
        return memory.peak

    run = sized(step, world_size=4, play=[0])
    real = simulate(step, world_size=4, backend="nccl")
    assert run.memory.peak == run.results[0] == real.results[0]
    assert run.memory.by_rank == {0: run.memory.peak}
    assert max(nbytes for _, nbytes, _ in run.trace.memory[0]) == run.memory.peak


def test_memory_is_what_torchs_own_tracker_finds():
    def step(track=lambda *_: None):
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        track(model, optimizer)
        model(torch.empty(512, 256)).sum().backward()
        optimizer.step()

    with FakeTensorMode(), MemTracker() as tracker:
        step(tracker.track_external)
    (found,) = tracker.get_tracker_snapshot("peak").values()
    assert sized(step).memory.peak == found["Total"]


def test_more_memory_than_the_gpu_has_is_told_and_no_error():
    run = sized(lambda: torch.empty(3 * 2**28).shape)
    assert (run.memory.peak, run.memory.fits) == (3 * 2**30, False)
    assert "3.00  300%  too much" in repr(run.memory)
    assert sized(lambda: torch.empty(2**27).shape).memory.fits


def test_kernels_are_a_table_in_text_and_in_html():
    def work():
        a = torch.empty(64, 64)
        for function in (torch.sin, torch.cos, torch.tan, torch.exp, torch.log, torch.abs):
            function(a @ a)

    table = sized(work).kernels[0]
    rows = repr(table).splitlines()
    assert rows[0].split() == ["kernels", "number", "ms", "share", "TFLOP", "GB"]
    assert rows[1].startswith("matrix products       6")
    assert rows[-1].split()[:3] == ["all", "kernels", "12"]
    assert table._repr_html_().count("<tr>") == len(rows)


def test_a_step_is_drawn():
    def step():
        with span("forward"):
            with_fully_shard()

    run = sized(step, world_size=4, gpu=SLOW, play=[0])
    assert {span.name for span in run.trace.spans} == {"forward", "compute"}
    assert "forward" in draw.memory(run).words
    picture = draw.timeline(run)
    assert "all_gather_single" in picture.words
    assert picture.axes[0].get_ylim() == (0.5, -0.5)  # the rank that was played has the only lane


def test_a_world_may_be_larger_where_few_of_its_ranks_are_played(monkeypatch):
    monkeypatch.setattr(arguments, "MOST_RANKS", 4)
    size = dist.get_world_size
    assert sized(size, world_size=32, play=[3]).results[3] == 32
    for played, world in (([3], 33), (range(5), 5), (None, 5)):
        with pytest.raises(CourseError, match=f"^world_size={world}: this machine can hold"):
            sized(size, world_size=world, play=played)


def test_a_group_takes_tensors_where_the_world_takes_them():
    """torch's pipelines ask for that before they give each pair of neighbours its communicator."""

    def ask():
        return dist.get_backend_config(dist.new_group([0, 1])), dist.get_backend_config()

    assert simulate(ask, world_size=2, backend="nccl").results == [("cpu:nccl", "cpu:nccl")] * 2


def test_a_model_may_be_made_of_copies():
    def forward():
        layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
        return nn.TransformerEncoder(layer, 2)(torch.empty(2, 8, 64)).shape

    assert sized(forward).results == [(2, 8, 64)]
