"""A published comparison of schedules at its true size: Llama 3.1 405B on 512 H100s.

torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 5: data 8 × tensor 8 × pipeline 8, 32
sequences a data-parallel rank, full checkpointing: 100 tokens/s and GPU with 1F1B, 128 with
Interleaved1F1B. Compiled and in float8, which is not modelled: so their ratio is compared. Taken to
be two stages a GPU and eight micro-batches, torchtitan's defaults then.

Each layer of a stage adds the same seconds, as soak_true_size.py shows. So one and two are played.
"""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from soak_ranks_common import by_value, report
from soak_true_size import H100, LENGTH, rotate
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from course_lib import Network, device, simulate

by_value(__name__)

WIDTH, HEADS, GROUPS, HIDDEN, WORDS = 16384, 128, 8, 53248, 128256
DATA, PIPELINE, TENSOR = 8, 8, 8
BATCH, MICRO = 32, 8


class Gather(torch.autograd.Function):
    """All parts of the sequence; backward sums the gradients and keeps this rank's part."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(group.size() * len(x), *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return Scatter.apply(grad, ctx.group), None


class Scatter(torch.autograd.Function):
    """The sum over all ranks, of which each keeps its part of the sequence."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(len(x) // group.size(), *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return Gather.apply(grad, ctx.group), None


class Block(nn.Module):
    """A layer of which this rank has some heads and some columns; x is (sequence, batch, width)."""

    def __init__(self, group):
        super().__init__()
        n, self.group, self.size = group.size(), group, WIDTH // HEADS
        self.norm, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        linear, few = partial(nn.Linear, bias=False), GROUPS // n * self.size
        self.q, self.o = linear(WIDTH, WIDTH // n), linear(WIDTH // n, WIDTH)
        self.k, self.v = linear(WIDTH, few), linear(WIDTH, few)
        self.gate, self.up = linear(WIDTH, HIDDEN // n), linear(WIDTH, HIDDEN // n)
        self.down = linear(HIDDEN // n, WIDTH)

    def forward(self, x, turns):
        y = Gather.apply(self.norm(x), self.group)
        x = x + Scatter.apply(self.attend(y, turns), self.group)
        y = Gather.apply(self.norm2(x), self.group)
        return x + Scatter.apply(self.down(F.silu(self.gate(y)) * self.up(y)), self.group)

    def attend(self, x, turns):
        s, b, _ = x.shape
        q, k, v = (f(x).view(s, b, -1, self.size).transpose(0, 1) for f in (self.q, self.k, self.v))
        q, k = rotate(q, turns), rotate(k, turns)
        k, v = (t.repeat_interleave(HEADS // GROUPS, dim=2) for t in (k, v))
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        return self.o(y.permute(2, 0, 1, 3).reshape(s, b, -1))


class Part(nn.Module):
    """A stage's layers; the first has the embedding, the last the head, cut by words."""

    def __init__(self, layers, first, last, group):
        super().__init__()
        self.group, words = group, WORDS // group.size()
        self.embedding = nn.Embedding(words, WIDTH) if first else None
        self.layers = nn.ModuleList(Block(group) for _ in range(layers))
        self.head = nn.Linear(WIDTH, words, bias=False) if last else None
        self.norm = nn.RMSNorm(WIDTH) if last else None

    def forward(self, x):
        if self.embedding is not None:
            x = Scatter.apply(self.embedding(x).transpose(0, 1), self.group)
        turns = torch.zeros(1, LENGTH, 1, WIDTH // HEADS // 2, dtype=torch.complex64)
        for layer in self.layers:
            x = layer(x, turns)
        return x if self.head is None else self.head(Gather.apply(self.norm(x), self.group))


def shard(part: Part, mesh) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in part.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(part, mesh=mesh, mp_policy=policy)
    part.to_empty(device=device())


def make_stage(number: int, of: int, layers: int, mesh) -> pipelining.PipelineStage:
    first, last, group = number == 0, number == of - 1, mesh.get_group("tensor")
    with torch.device("meta"):
        part = Part(layers, first, last, group)
    shard(part, mesh["data"])
    kind = {"dtype": torch.bfloat16, "requires_grad": True}
    hidden = torch.zeros(LENGTH // TENSOR, BATCH // MICRO, WIDTH, **kind)
    words = torch.zeros(BATCH // MICRO, LENGTH, dtype=torch.long)
    scores = torch.zeros(LENGTH, BATCH // MICRO, WORDS // TENSOR, **kind)
    return pipelining.PipelineStage(
        part,
        number,
        of,
        torch.device("cpu"),
        group=mesh.get_group("pipeline"),
        input_args=(words if first else hidden,),
        output_args=(scores if last else hidden,),
    )


def loss_of(scores, target):
    return scores.float().logsumexp(-1).mean()


def step(layers: int, each: int) -> float:
    """Seconds of a step of ``each`` stages a GPU, with that many layers."""
    torch.distributed.config.pipeline_per_edge_p2p = True  # see lesson 15
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
    network = Network.cluster(gpus // 8, 8, Network(5e-6, 370e9), Network(10e-6, 45e9))
    world = {"world_size": gpus, "backend": "nccl", "network": network, "limit": 3000}
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
