"""Published runs in two dimensions at their true size, beside the published figures.

torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md: FSDP × tensor parallel, bfloat16,
compiled, which is not modelled.
"""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch
from soak_ranks_common import by_value, report
from soak_true_size import GIB, H100, LENGTH, Llama, choose, time_second_step
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor import parallel as tp
from torch.utils.checkpoint import checkpoint

from course_lib import Network, simulate

by_value(__name__)

SIZES = {
    "8B": (32, 4096, 32, 8, 14336, 128256),
    "70B": (80, 8192, 64, 8, 28672, 128256),
}


def cut(model: Llama, mesh) -> None:
    """Tensor parallelism with the sequence cut between the layers, as torchtitan does it."""
    ends = {
        "embedding": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": tp.SequenceParallel(),
        "out": tp.ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }
    ends = {name: plan for name, plan in ends.items() if getattr(model, name) is not None}
    tp.parallelize_module(model, mesh, ends)
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


def shard(model: Llama, mesh, selective: bool) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    how = {"context_fn": choose} if selective else {}
    for layer in model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, **how)
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def in_two_dimensions(size: str, batch: int, dp: int, selective: bool) -> float:
    """Seconds of the second of two steps."""
    mesh = init_device_mesh("cpu", (dp, 8), mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        model = Llama(*SIZES[size])
    cut(model, mesh["tp"])
    shard(model, mesh["dp"], selective)
    return time_second_step(model, batch, tp.loss_parallel)


def network(gpus: int) -> Network:
    """Each group between nodes has one GPU on a node, and that GPU's link of 45 GB/s."""
    return Network.cluster(gpus // 8, 8, Network(5e-6, 370e9), Network(10e-6, 45e9))


@pytest.mark.parametrize(
    ("size", "gpus", "batch", "selective", "published"),
    [("70B", 256, 16, False, 597.3), ("8B", 64, 12, True, 4378)],
)
def test_fsdp_by_tensor_parallel(size, gpus, batch, selective, published):
    spent = time.process_time()
    world = {"world_size": gpus, "backend": "nccl", "network": network(gpus), "limit": 3000}
    args = size, batch, gpus // 8, selective
    run = simulate(in_two_dimensions, *args, **world, gpu=H100, play=[0])
    rate, spent = batch * LENGTH / run.results[0] / 8, time.process_time() - spent
    memory = run.memory.peak / GIB
    report(f"published_{size}_{gpus}", tokens=rate, gib=memory, cpu_seconds=spent)
    assert rate == pytest.approx(published, rel=0.2)
