"""A published run at its true size: Llama 3.1 8B on 8 and 128 H100s, beside torchtitan's figures.

Published: torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 1: eager, FSDP, bfloat16
with float32 reduction, selective checkpointing of operators, batch 2 of 8,192 tokens; H100 of 96 GB
with 2.4 TB/s, 400 Gb/s for each GPU between nodes. Their memory is what the allocator has reserved.

What is predicted is 13% (8 GPUs) and 18% (128) faster. Half of the step is matrix products, and the
default of 0.62 of the peak is a guess for a GPU that may use 700 W, while these may use 500 W. With
0.50 it would be 0.5% and 5% faster. That is not used here: nothing is fitted. The model also leaves
out that NCCL's kernels slow down those beside them, and that a larger job waits for its slowest
machine.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from soak_ranks_common import by_value, report
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from course_lib import GPU, Network, device, simulate

by_value(__name__)

GIB = 2**30
H100 = GPU.h100(memory=95 * GIB, bandwidth=2.4e12)
LENGTH, BATCH = 8192, 2
PUBLISHED = {8: (5762, 82.4), 128: (5605, 67.0)}  # GPUs: tokens/s and GPU, GiB


class Attention(nn.Module):
    def __init__(self, d: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, d // heads
        self.q, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, groups * self.size, bias=False)
        self.v = nn.Linear(d, groups * self.size, bias=False)

    def forward(self, x, turns):
        b, s, _ = x.shape
        q = rotate(self.q(x).view(b, s, self.heads, self.size), turns)
        k = rotate(self.k(x).view(b, s, self.groups, self.size), turns)
        v = self.v(x).view(b, s, self.groups, self.size)
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=2) for t in (k, v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, s, -1))


def rotate(x, turns):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


class FeedForward(nn.Module):
    def __init__(self, d: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(d, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, d, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, d: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.attention = Attention(d, heads, groups)
        self.norm, self.norm2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        self.feed = FeedForward(d, hidden)

    def forward(self, x, turns):
        x = x + self.attention(self.norm(x), turns)
        return x + self.feed(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, layers, d, heads, groups, hidden, words) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, d)
        self.layers = nn.ModuleList(Block(d, heads, groups, hidden) for _ in range(layers))
        self.norm, self.out = nn.RMSNorm(d, eps=1e-5), nn.Linear(d, words, bias=False)

    def forward(self, tokens, turns):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, turns)
        return self.out(self.norm(x))


def choose():
    """Keep every second matrix product, and attention."""
    seen = [0, 0]

    def policy(context, func, *_, **__):
        product = func is torch.ops.aten.mm.default
        seen[context.is_recompute] += product
        kept = seen[context.is_recompute] % 2 if product else "attention" in str(func)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def train(layers: int) -> float:
    """Seconds of the second of two steps."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with torch.device("meta"):
        model = Llama(layers, 4096, 32, 8, 14336, 128256)
    for layer in model.layers:
        forward = partial(checkpoint, layer.forward, use_reentrant=False, context_fn=choose)
        layer.forward = forward
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return time_second_step(model, BATCH)


def time_second_step(model: nn.Module, batch: int, loss_context=nullcontext) -> float:
    """Seconds of the second of two steps of a model that lies on the meta device."""
    model.to_empty(device=device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
    tokens = torch.zeros(batch, LENGTH, dtype=torch.long)
    turns = torch.zeros(1, LENGTH, 1, 64, dtype=torch.complex64)
    synchronize = torch.get_device_module(device()).synchronize
    for _ in range(2):
        synchronize()
        start = time.perf_counter()
        with loss_context():
            loss = F.cross_entropy(model(tokens, turns).flatten(0, 1).float(), tokens.flatten())
            loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad()
        synchronize()
    return time.perf_counter() - start


def llama(gpus: int, layers: int, play: list[int] | None = None):
    inside, between = Network(5e-6, 370e9), Network(10e-6, 8 * 45e9)
    network = Network.cluster(gpus // 8, 8, inside, between)
    world = {"world_size": gpus, "backend": "nccl", "network": network}
    return simulate(train, layers, **world, gpu=H100, play=play, limit=900)


@pytest.mark.parametrize("gpus", PUBLISHED)
def test_a_published_run_is_predicted_within_a_fifth(gpus):
    spent = time.process_time()
    run = llama(gpus, 32, play=[0])
    spent = time.process_time() - spent
    rate, memory = BATCH * LENGTH / run.results[0], run.memory.peak / GIB
    kernels = run.kernels[0].total.number
    report(f"true_size_{gpus}", tokens=rate, gib=memory, cpu_seconds=spent, kernels=kernels)
    assert rate == pytest.approx(PUBLISHED[gpus][0], rel=0.2)
    assert memory == pytest.approx(PUBLISHED[gpus][1], rel=0.2)


def test_one_rank_takes_as_long_as_all_eight_to_the_last_digit():
    one, every = llama(8, 2, [0]), llama(8, 2)
    assert one.results[0] == every.results[0] > 0.1
    assert one.memory.peak == every.memory.peak


def test_a_wrong_figure_is_seen():
    """The judge above: half the peak is out of its reach."""
    slow = GPU.h100(bandwidth=2.4e12, matmul_efficiency=0.31)
    network = Network(5e-6, 370e9)
    world = {"world_size": 8, "backend": "nccl", "network": network}
    run = simulate(train, 32, **world, gpu=slow, play=[0], limit=900)
    assert BATCH * LENGTH / run.results[0] < 0.8 * PUBLISHED[8][0]
