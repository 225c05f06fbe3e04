"""Published runs of Llama 3.1 405B with pipelines at their true size.

512 H100s: torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 5: data 8 × tensor 8 ×
pipeline 8, 32 sequences for each data-parallel rank, full checkpointing: 100 tokens/s and GPU with
1F1B, 128 with Interleaved1F1B. These runs were compiled and in float8, which is not modelled, so
their ratio is compared. The page does not say how many stages a GPU had, nor how many micro-batches
there were: two and eight are assumed here. Each layer of a stage adds the same seconds, as
test_what_lessons_say.py shows. So stages of one layer and of two are played, and the whole model
follows from them.

16,384 H100s: "The Llama 3 Herd of Models" (arXiv:2407.21783), table 4: data 128 × pipeline 16 ×
tensor 8, 16 sequences of 8,192 for each data-parallel rank, bfloat16 with gradients reduced in
float32, no checkpointing, weights kept between forward and backward: 400 TFLOP/s and GPU. Its 126
layers are those of 128 stages, of which the first and the last have none: eight stages a GPU, each
of one layer, are played whole. The page does not say how many stages a GPU had: with four the model
has 6% less. Memory is not compared: theirs is tuned to 80 GB by freeing what a stage has sent on,
and torch's own schedule keeps it.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import pytest
import torch
from soak_published import cut, network, shard
from soak_ranks_common import by_value, report
from soak_true_size import GIB, H100, LENGTH, Llama
from torch.distributed import config, pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from course_lib import GPU, device, simulate

by_value(__name__)

SIZES = WIDTH, HEADS, _, _, WORDS = 16384, 128, 8, 53248, 128256


class Plan(NamedTuple):
    data: int
    pipeline: int
    tensor: int
    sequences: int  # of a data-parallel rank
    micro: int  # batches that they are cut into
    checkpointing: bool
    gpu: GPU

    @property
    def gpus(self) -> int:
        return self.data * self.pipeline * self.tensor


TORCHTITAN = Plan(8, 8, 8, 32, 8, True, H100)
HERD = Plan(128, 16, 8, 16, 16, False, GPU.h100(memory=400 * GIB))


class Part(Llama):
    """Some layers: those of the first stage have the embedding, those of the last the output."""

    def __init__(self, layers: int, first: bool, last: bool) -> None:
        super().__init__(layers, *SIZES)
        if not first:
            self.embedding = None
        if not last:
            self.norm = self.out = None

    def forward(self, x):
        turns = torch.zeros(1, LENGTH, 1, WIDTH // HEADS // 2, dtype=torch.complex64)
        x = x if self.embedding is None else self.embedding(x)
        for layer in self.layers:
            x = layer(x, turns)
        return x if self.out is None else self.out(self.norm(x)).to_local()


def make_stage(number: int, of: int, layers: int, plan: Plan, mesh) -> pipelining.PipelineStage:
    first, last = number == 0, number == of - 1
    with torch.device("meta"):
        part = Part(layers - (plan is not TORCHTITAN and (first or last)), first, last)
    cut(part, mesh["tensor"])
    if plan.checkpointing:
        shard(part, mesh["data"], selective=False)
    else:
        keep(part, mesh["data"])
    part.to_empty(device=device())
    each = plan.sequences // plan.micro
    words = torch.zeros(each, LENGTH, dtype=torch.long)
    hidden, scores = (
        torch.zeros(each, *size, dtype=torch.bfloat16, requires_grad=True)
        for size in ((LENGTH // plan.tensor, WIDTH), (LENGTH, WORDS // plan.tensor))
    )
    given, returned = words if first else hidden, scores if last else hidden
    ends = {"input_args": (given,), "output_args": (returned,)}
    group = mesh.get_group("pipeline")
    return pipelining.PipelineStage(part, number, of, torch.device("cpu"), group=group, **ends)


def keep(part: Part, mesh) -> None:
    """Cut the states, the gradients and the weights, and gather the weights once a step."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for module in (*part.layers, part):
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=False)


def loss_of(scores, target):
    return scores.float().logsumexp(-1).mean()


def step(plan: Plan, layers: int, each: int) -> float:
    """Seconds of a step of ``each`` stages a GPU, with that many layers."""
    config.pipeline_per_edge_p2p = True  # see lesson 15
    mesh = init_device_mesh("cpu", plan[:3], mesh_dim_names=("data", "pipeline", "tensor"))
    place, of = mesh.get_local_rank("pipeline"), plan.pipeline * each
    stages = [make_stage(n, of, layers, plan, mesh) for n in range(place, of, plan.pipeline)]
    kind = pipelining.Schedule1F1B if each == 1 else pipelining.ScheduleInterleaved1F1B
    schedule = kind(stages[0] if each == 1 else stages, plan.micro, loss_fn=loss_of)
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.AdamW(parameters, foreach=True)
    words = torch.zeros(plan.sequences, LENGTH, dtype=torch.long)
    start = time.perf_counter()
    target = {"target": words} if place == plan.pipeline - 1 else {}
    schedule.step(*([words] if place == 0 else []), **target)
    optimizer.step()
    torch.get_device_module(device()).synchronize()
    return time.perf_counter() - start


def seconds(plan: Plan, layers: int, each: int) -> float:
    """The same for the slowest rank of a pipeline, on machines of eight."""
    world = {"world_size": plan.gpus, "backend": "nccl", "network": network(plan.gpus)}
    play = [place * plan.tensor for place in range(plan.pipeline)]
    run = simulate(step, plan, layers, each, **world, gpu=plan.gpu, play=play, limit=3000)
    return max(run.results[rank] for rank in play)


def test_interleaving_is_as_much_faster_as_published():
    whole = {}
    for each, layers in ((1, 16), (2, 8)):
        one, two = seconds(TORCHTITAN, 1, each), seconds(TORCHTITAN, 2, each)
        whole[each] = one + (layers - 1) * (two - one)
    report("pipelines", one_f_one_b=whole[1], interleaved=whole[2])
    assert whole[1] / whole[2] == pytest.approx(128 / 100, rel=0.05)


def test_llama_3_on_16384_gpus():
    took = seconds(HERD, 1, 8)
    tokens = HERD.data * HERD.sequences * LENGTH
    rate = 6 * 405e9 * tokens / took / HERD.gpus / 1e12
    report("llama_3_herd", seconds=took, tflops=rate)
    assert rate == pytest.approx(400, rel=0.15)
