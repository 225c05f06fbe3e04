"""Published runs in two dimensions at their true size, beside the published figures.

torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md: FSDP × tensor parallel, bfloat16,
"vanilla TP". They are compiled, which is not modelled, and here all kernels are eager. Pipelines
are compared with one another alone: no published one has been played to its end.
"""

from __future__ import annotations

import resource
import time
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from soak_ranks_common import by_value, report
from soak_true_size import GIB, H100, LENGTH, Llama, choose
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor import parallel as tp
from torch.utils.checkpoint import checkpoint

from course_lib import GPU, Network, device, simulate

by_value(__name__)

SIZES = {
    "8B": (32, 4096, 32, 8, 14336, 128256),
    "70B": (80, 8192, 64, 8, 28672, 128256),
    "405B": (126, 16384, 128, 8, 53248, 128256),
}


def cut(model: Llama, mesh) -> None:
    """Tensor parallelism with the sequence cut between the layers, as torchtitan does it."""
    ends = {
        "embedding": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": tp.SequenceParallel(),
        "out": tp.ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }
    named = dict(model.named_children())
    tp.parallelize_module(model, mesh, {name: ends[name] for name in ends if name in named})
    columns, rows = tp.ColwiseParallel, partial(tp.RowwiseParallel, output_layouts=Shard(1))
    gathers = partial(tp.PrepareModuleInput, use_local_output=False)
    for layer in model.layers:
        plan = {
            "norm": tp.SequenceParallel(),
            "norm2": tp.SequenceParallel(),
            "attention": gathers(
                input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
            ),
            "feed": gathers(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            **{f"attention.{name}": columns() for name in "qkv"},
            **{f"feed.{name}": columns() for name in ("gate", "up")},
            "attention.o": rows(),
            "feed.down": rows(),
        }
        tp.parallelize_module(layer, mesh, plan)
        layer.attention.heads //= mesh.size()
        layer.attention.groups //= mesh.size()


def shard(model: Llama, mesh, selective: bool, keep: bool) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    how = {"context_fn": choose} if selective else {}
    for layer in model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, **how)
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=not keep)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=not keep)


def in_two_dimensions(size: str, batch: int, dp: int, selective: bool) -> float:
    """Seconds of the second of two steps."""
    mesh = init_device_mesh("cpu", (dp, 8), mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        model = Llama(*SIZES[size])
    cut(model, mesh["tp"])
    shard(model, mesh["dp"], selective, keep=False)
    model.to_empty(device=device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
    tokens = torch.zeros(batch, LENGTH, dtype=torch.long)
    turns = torch.zeros(1, LENGTH, 1, 64, dtype=torch.complex64)
    synchronize = torch.get_device_module(device()).synchronize
    for _ in range(2):
        synchronize()
        start = time.perf_counter()
        with tp.loss_parallel():
            loss = F.cross_entropy(model(tokens, turns).flatten(0, 1).float(), tokens.flatten())
            loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad()
        synchronize()
    return time.perf_counter() - start


class Part(Llama):
    """Some layers; the first part has the embedding, and the last one what comes behind."""

    def __init__(self, layers: int, first: bool, last: bool, *sizes: int) -> None:
        super().__init__(layers, *sizes)
        self.first, self.last = first, last
        for name in ("embedding",) * (not first) + ("norm", "out") * (not last):
            delattr(self, name)

    def forward(self, x):
        x = self.embedding(x) if self.first else x
        turns = torch.zeros(1, LENGTH, 1, 64, dtype=torch.complex64)
        for layer in self.layers:
            x = layer(x, turns)
        return self.out(self.norm(x)) if self.last else x


def in_three_dimensions(size: str, batch: int, dp: int, pp: int, turns: int) -> float:
    """Seconds of one step with one sequence a microbatch; of each rank's ``turns`` stages."""
    mesh = init_device_mesh("cpu", (pp, dp, 8), mesh_dim_names=("pp", "dp", "tp"))
    layers, *sizes = SIZES[size]
    number, most = mesh["pp"].get_local_rank(), pp * turns
    stages = []
    for k in range(number, most, pp):
        mine = len(range(k, layers, most))
        with torch.device("meta"):
            part = Part(mine, k == 0, k == most - 1, *sizes)
        cut(part, mesh["tp"])
        shard(part, mesh["dp"], False, keep=True)
        part.to_empty(device=device())
        between = torch.zeros(1, LENGTH // 8, sizes[0], dtype=torch.bfloat16, requires_grad=True)
        given = torch.zeros(1, LENGTH, dtype=torch.long) if k == 0 else between
        logits = torch.zeros(1, LENGTH, sizes[-1], dtype=torch.bfloat16, device="meta")
        made = logits if k == most - 1 else between
        group = mesh["pp"].get_group()
        stages.append(
            pipelining.PipelineStage(
                part, k, most, device(), input_args=(given,), output_args=(made,), group=group
            )
        )
    optimizer = torch.optim.AdamW([p for s in stages for p in s.submod.parameters()], foreach=True)
    loss = lambda y, t: F.cross_entropy(y.flatten(0, 1).float(), t.flatten())  # noqa: E731
    kind = pipelining.ScheduleInterleaved1F1B if turns > 1 else pipelining.Schedule1F1B
    schedule = kind(stages if turns > 1 else stages[0], batch, loss_fn=loss)
    tokens = torch.zeros(batch, LENGTH, dtype=torch.long)
    inputs = [tokens] if number == 0 else []
    with tp.loss_parallel():
        schedule.step(*inputs, **({"target": tokens} if number == pp - 1 else {}))
    optimizer.step()
    torch.get_device_module(device()).synchronize()
    return time.perf_counter()


def network(gpus: int) -> Network:
    """Each group between nodes has one GPU on a node, and that GPU's link of 45 GB/s."""
    return Network.cluster(gpus // 8, 8, Network(5e-6, 370e9), Network(10e-6, 45e9))


def play(name: str, fn, *args, gpus: int, ranks, gpu: GPU = H100):
    spent = time.process_time()
    world = {"world_size": gpus, "backend": "nccl", "network": network(gpus), "limit": 3000}
    run = simulate(fn, *args, **world, gpu=gpu, play=ranks)
    found = {
        "seconds": run.results[ranks[-1]],
        "gib": run.memory.peak / GIB,
        "kernels": sum(run.kernels[r].total.number for r in ranks),
        "cpu_seconds": time.process_time() - spent,
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }
    report(name, **found)
    return run


@pytest.mark.parametrize(
    ("size", "gpus", "batch", "selective", "published"),
    [("70B", 256, 16, False, 597.3), ("8B", 64, 12, True, 4378)],
)
def test_fsdp_by_tensor_parallel(size, gpus, batch, selective, published):
    args = size, batch, gpus // 8, selective
    run = play(f"published_{size}_{gpus}", in_two_dimensions, *args, gpus=gpus, ranks=[0])
    rate = batch * LENGTH / run.results[0] / 8
    assert rate == pytest.approx(published, rel=0.2)


def test_an_interleaved_schedule_has_the_smaller_bubble():
    """Four layers of a 405B, 2 stages × FSDP 2 × tensor parallel 8, four microbatches."""
    layers, *sizes = SIZES["405B"]
    SIZES["405B"] = (4, *sizes)
    runs = [
        play(f"pipeline_{k}", in_three_dimensions, "405B", 4, 2, 2, k, gpus=32, ranks=[0, 16])
        for k in (1, 2)
    ]
    SIZES["405B"] = (layers, *sizes)
    assert runs[1].seconds < runs[0].seconds
