"""A published comparison of schedules at its true size: Llama 3.1 405B on 512 H100s.

torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 5: data 8 × tensor 8 × pipeline 8, 32
sequences for each data-parallel rank, full checkpointing: 100 tokens/s and GPU with 1F1B, 128 with
Interleaved1F1B. These runs were compiled and in float8, which is not modelled, so their ratio is
compared. The page does not say how many stages a GPU had, nor how many micro-batches there were:
two and eight are assumed here.

Each layer of a stage adds the same seconds, as test_what_lessons_say.py shows. So stages of one
layer and of two are played, and the whole model follows from them.
"""

from __future__ import annotations

import time

import pytest
import torch
from soak_published import cut, network, shard
from soak_ranks_common import by_value, report
from soak_true_size import H100, LENGTH, Llama
from torch.distributed import config, pipelining
from torch.distributed.device_mesh import init_device_mesh

from course_lib import device, simulate

by_value(__name__)

SIZES = WIDTH, HEADS, _, _, WORDS = 16384, 128, 8, 53248, 128256
DATA, PIPELINE, TENSOR = 8, 8, 8
BATCH, MICRO = 32, 8


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


def make_stage(number: int, of: int, layers: int, mesh) -> pipelining.PipelineStage:
    first, last = number == 0, number == of - 1
    with torch.device("meta"):
        part = Part(layers, first, last)
    cut(part, mesh["tensor"])
    shard(part, mesh["data"], selective=False)
    part.to_empty(device=device())
    words = torch.zeros(BATCH // MICRO, LENGTH, dtype=torch.long)
    hidden, scores = (
        torch.zeros(BATCH // MICRO, *size, dtype=torch.bfloat16, requires_grad=True)
        for size in ((LENGTH // TENSOR, WIDTH), (LENGTH, WORDS // TENSOR))
    )
    given, returned = words if first else hidden, scores if last else hidden
    ends = {"input_args": (given,), "output_args": (returned,)}
    group = mesh.get_group("pipeline")
    return pipelining.PipelineStage(part, number, of, torch.device("cpu"), group=group, **ends)


def loss_of(scores, target):
    return scores.float().logsumexp(-1).mean()


def step(layers: int, each: int) -> float:
    """Seconds of a step of ``each`` stages a GPU, with that many layers."""
    config.pipeline_per_edge_p2p = True  # see lesson 15
    sizes = DATA, PIPELINE, TENSOR
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("data", "pipeline", "tensor"))
    place, of = mesh.get_local_rank("pipeline"), PIPELINE * each
    stages = [make_stage(n, of, layers, mesh) for n in range(place, of, PIPELINE)]
    kind = pipelining.Schedule1F1B if each == 1 else pipelining.ScheduleInterleaved1F1B
    schedule = kind(stages[0] if each == 1 else stages, MICRO, loss_fn=loss_of)
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.AdamW(parameters, foreach=True)
    words = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    start = time.perf_counter()
    target = {"target": words} if place == PIPELINE - 1 else {}
    schedule.step(*([words] if place == 0 else []), **target)
    optimizer.step()
    torch.get_device_module(device()).synchronize()
    return time.perf_counter() - start


def seconds(layers: int, each: int) -> float:
    """The same for the slowest rank of a pipeline, on 64 machines of eight."""
    gpus = DATA * PIPELINE * TENSOR
    world = {"world_size": gpus, "backend": "nccl", "network": network(gpus), "limit": 3000}
    play = [place * TENSOR for place in range(PIPELINE)]
    run = simulate(step, layers, each, **world, gpu=H100, play=play)
    return max(run.results[rank] for rank in play)


def test_interleaving_is_as_much_faster_as_published():
    whole = {}
    for each, layers in ((1, 16), (2, 8)):
        one, two = seconds(1, each), seconds(2, each)
        whole[each] = one + (layers - 1) * (two - one)
    report("pipelines", one_f_one_b=whole[1], interleaved=whole[2])
    assert whole[1] / whole[2] == pytest.approx(128 / 100, rel=0.05)
