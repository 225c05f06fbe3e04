"""Records what plans of lesson 17 cost, for its checks: course_exercises/lesson_17_capstone.json.

Seconds are those of a skeleton: of each stage one rank is played, which computes for as long as its
layers would and makes their calls. Bytes are counted on the first stage's first rank, which has
real layers at their true size, without values. So no formula is written down here or in a check.
What a mistake would give is recorded in the same way, of a program that makes it.

    .venv/bin/python tools/record_plans.py          a few minutes of one core
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from course_lib import GPU, Network, compute, device, simulate  # noqa: E402

TABLE = ROOT / "course_exercises" / "lesson_17_capstone.json"
HEAD = 128  # numbers of a head of attention
again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
Facts = dict[str, Any]  # a model, a cluster, a plan, or what a skeleton does

# ---- seconds: a skeleton of a plan ---------------------------------------------------------------


def describe(model: Facts, cluster: Facts, plan: Facts) -> Facts:
    """What a rank computes and says, in seconds and bytes; a number has two bytes."""
    width, sequence, tp = model["width"], model["sequence"], plan["tp"]
    tokens = model["batch"] // (plan["dp"] * plan["m"]) * sequence
    attention = 4 * tokens * sequence * width
    forward = (24 * tokens * width**2 + attention) / tp / cluster["flops"]
    return plan | {
        "layers": model["layers"] // plan["pp"],
        "forward": forward,
        "backward": 2 * forward,
        "no attention": forward - attention / tp / cluster["flops"],
        "talks": (2, 2),  # of tp, in a layer's forward and backward
        "talk": 2 * tokens * width,
        "hops": (2 * tokens * width,) * 2,  # there and back
        "gradient": 2 * 12 * width**2 // tp,
        "reduced": "behind",  # the last backward; or "before", "after", behind "each", "never"
        "again": (plan["checkpoint"], 2),  # whether a layer is computed again, and tp's calls then
        "inner": ("tp",),  # the groups of neighbours
        **{name: cluster[name] for name in ("nodes", "gpus", "intra", "inter")},
    }


def work(job: Facts) -> None:
    """One rank of a stage: all forwards, then all backwards, as in GPipe."""
    stage, groups, hops = make_groups(job)
    shard = torch.empty(job["talk"], dtype=torch.uint8)
    there, back = (torch.empty(size, dtype=torch.uint8) for size in job["hops"])
    gradients = [torch.empty(job["gradient"], dtype=torch.uint8) for _ in range(job["layers"])]
    begun: list[Any] = []

    def one_layer(seconds: float, talks: int) -> None:
        compute(seconds)
        for _ in range(talks if job["tp"] > 1 else 0):
            dist.all_reduce(shard, group=groups["tp"])

    def average(layer: int, *when: str) -> None:
        if job["dp"] > 1 and job["reduced"] in when:
            begun.append(dist.all_reduce(gradients[layer], group=groups["dp"], async_op=True))

    def hand_on(tensor: torch.Tensor, boundary: int, peer: int) -> None:
        if boundary in hops:
            begun.append(dist.isend(tensor, group=hops[boundary], group_dst=peer))

    def wait_for(tensor: torch.Tensor, boundary: int, peer: int) -> None:
        if boundary in hops:
            dist.recv(tensor, group=hops[boundary], group_src=peer)

    for _ in range(job["m"]):
        wait_for(there, stage - 1, 0)
        for _ in range(job["layers"]):
            one_layer(job["forward"], job["talks"][0])
        hand_on(there, stage, 1)
    for micro in range(job["m"]):
        wait_for(back, stage, 1)
        for layer in range(job["layers"]):
            last = micro == job["m"] - 1
            average(layer, *["before"] * last)
            if job["again"][0]:
                one_layer(job["forward"], job["again"][1])
            one_layer(job["backward"], job["talks"][1])
            average(layer, "each", *["behind"] * last)
        hand_on(back, stage - 1, 0)
    for gradient in gradients if job["reduced"] == "after" and job["dp"] > 1 else ():
        dist.all_reduce(gradient, group=groups["dp"])
    for each in begun:
        each.wait()


def make_groups(job: Facts) -> tuple[int, dict[str, Any], dict[int, Any]]:
    """The stage of this rank, its groups of tp and dp, and its boundaries with other stages."""
    dp, tp = job["dp"], job["tp"]
    stage, mine, hops = dist.get_rank() // (dp * tp), {}, {}
    steps = {"tp": (tp, dp), "dp": (dp, tp)} | {name: (job[name], 1) for name in job["inner"]}
    for other in range(job["pp"]):
        first = other * dp * tp
        for name, (n, step) in steps.items():
            group = dist.new_group([first + i * step for i in range(n)])
            if other == stage:
                mine[name] = group
    for boundary in range(job["pp"] - 1):
        ends = [boundary * dp * tp, (boundary + 1) * dp * tp]
        group = dist.new_group(ends)
        if dist.get_rank() in ends:
            hops[boundary] = group
    return stage, mine, hops


def time_of(job: Facts) -> float:
    """Seconds of a step: one rank of each stage is played, so each has a link of its own."""
    inside, between = Network(*job["intra"]), Network(*job["inter"])
    size = job["dp"] * job["tp"]
    run = simulate(
        work,
        job,
        world_size=size * job["pp"],
        network=Network.cluster(job["nodes"], job["gpus"], inside, between),
        backend="nccl",
        gpu=GPU.h100(),
        play=[stage * size for stage in range(job["pp"])],
    )
    return run.seconds


def slot(job: Facts) -> float:
    """Seconds of one micro-batch on one stage, there and back."""
    return time_of(job | {"m": 1, "pp": 1, "dp": 1})


def bubbles(job: Facts) -> Iterator[float]:
    """None, one slot too many, that of one way alone, and slots of the whole model."""
    whole, one, others = time_of(job), slot(job), job["pp"] - 1
    there = slot(job | {"backward": 0.0, "talks": (job["talks"][0], 0), "again": (False, 0)})
    yield whole - others * one
    yield whole + one
    yield whole - others * there
    yield whole - others * (one - there)
    yield whole + others * others * one


def hops_of(job: Facts) -> float:
    """Seconds of a step that hops from stage to stage take."""
    return time_of(job) - time_of(job | {"hops": (1, 1)})


def other_hops(job: Facts) -> Iterator[float]:
    """All hops for each micro-batch, for one alone, and the slowest for each."""
    m, without = job["m"], time_of(job) - hops_of(job)
    one, two = (hops_of(job | {"m": m}) for m in (1, 2))
    yield without + m * one
    yield without + one
    yield without + m * (two - one)


def averaged_as_in(job: Facts, other: Facts) -> float:
    """As much is left of averaging as in another job."""
    never = {"reduced": "never"}
    return time_of(job | never) + time_of(other) - time_of(other | never)


Other = Callable[[Facts], Facts]


def times(factor: int, *names: str) -> Other:
    """So many times the seconds or bytes of these."""
    return lambda job: {
        name: tuple(factor * size for size in job[name]) if name == "hops" else factor * job[name]
        for name in names
    }


def latencies(steps: Callable[[int], float]) -> Other:
    """Among n ranks so many latencies, there and back, in place of ⌈log₂ n⌉."""

    def way(job: Facts) -> Facts:
        n = max(job["dp"], job["tp"], 2)
        factor = steps(n) / math.ceil(math.log2(n))
        return {link: (factor * job[link][0], job[link][1]) for link in ("intra", "inter")}

    return way


SLOWER: dict[str, list[Other]] = {
    "backward-once": [lambda job: {"backward": job["forward"]}],
    "not-again": [lambda job: {"again": (False, 0)}, lambda job: {"again": (job["again"][0], 0)}],
    "m": [
        lambda job: {"m": 1},
        lambda job: times(job["m"], "forward", "backward", "talk", "hops")(job),
    ],
    "once-a-layer": [
        lambda job: {"talks": (1, 1), "again": (job["again"][0], 1)},
        lambda job: {"talks": (2, 0)},
    ],
    "tp-is-silent": [lambda job: {"talks": (0, 0), "again": (job["again"][0], 0)}],
    "tp-computes-all": [lambda job: times(job["tp"], "forward", "backward")(job)],
    "whole-gradients": [
        lambda job: times(job["pp"], "gradient")(job),
        lambda job: times(job["tp"], "gradient")(job),
        lambda job: times(job["pp"] * job["tp"], "gradient")(job),
    ],
    "not-hidden": [lambda job: {"reduced": "after"}],
    "all-hidden": [lambda job: {"reduced": "never"}, lambda job: {"reduced": "before"}],
    "every-micro-batch": [lambda job: {"reduced": "each"}],
    "no-hops": [lambda job: {"hops": (1, 1)}, lambda job: {"hops": (job["hops"][0], 1)}],
    "network": [lambda job: {"gpus": 1, "nodes": job["gpus"] * job["nodes"]}],
    "inside": [lambda job: {"inter": job["intra"]}],
    "tp-across": [lambda job: {"inner": ("dp",)}, lambda job: {"inner": ("dp", "tp")}],
    "half-an-all-reduce": [
        lambda job: {"talk": job["talk"] // 2, "gradient": job["gradient"] // 2},
    ],
    "latency": [
        latencies(lambda n: math.ceil(math.log2(n)) / 2),
        latencies(math.log2),
        latencies(lambda n: math.floor(math.log2(n))),
        latencies(lambda n: n - 1),
        latencies(lambda n: 0),
    ],
    "attention": [
        lambda job: {"forward": job["no attention"], "backward": 2 * job["no attention"]},
    ],
    "float32": [
        times(2, "talk", "hops", "gradient"),
        times(2, "talk", "hops"),
        times(2, "talk"),
        times(2, "hops"),
        times(2, "gradient"),
        lambda job: {"gradient": job["gradient"] // 2},
    ],
}


def record_step(model: Facts, cluster: Facts, plan: Facts) -> Facts:
    """The seconds of a plan, and by each mistake what they would be with it."""
    job = describe(model, cluster, plan)
    wrong = {name: [time_of(job | way(job)) for way in ways] for name, ways in SLOWER.items()}
    all_layers = job | {"pp": 1, "m": 1, "layers": model["layers"]}
    wrong["whole-gradients"].append(averaged_as_in(job, all_layers))
    wrong["not-again"].append(averaged_as_in(job, job | {"again": (False, 0)}))
    wrong["m"].append(
        time_of(describe(model | {"batch": plan["dp"] * model["batch"]}, cluster, plan))
    )
    wrong["inside"].append(time_of(job) - hops_of(job) + hops_of(job | {"inter": job["intra"]}))
    wrong["hops"] = [*other_hops(job)]
    wrong["bubble"] = [*bubbles(job)]
    wrong["units"] = [1e3 * time_of(job), 1e6 * time_of(job)]
    given = {"model": model, "cluster": cluster, "plan": plan}
    return {"given": given, "right": time_of(job), "wrong": wrong}


# ---- bytes: the first stage's layers at their true size ------------------------------------------


class Whole(torch.autograd.Function):
    """What all ranks of tp have: its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Summed(torch.autograd.Function):
    """The sum over the ranks of tp, in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        dist.all_reduce(x, group=group)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class Layer(nn.Module):
    """Attention and a feed-forward part, cut among the ranks of tp."""

    def __init__(self, width: int, tp: int, group: Any) -> None:
        super().__init__()
        linear = partial(nn.Linear, bias=False)
        self.group = group
        self.norm, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.qkv, self.out = linear(width, 3 * width // tp), linear(width // tp, width)
        self.up, self.down = linear(width, 4 * width // tp), linear(4 * width // tp, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(Whole.apply(self.norm(x), self.group)).chunk(3, 2)
        q, k, v = (part.unflatten(2, (-1, HEAD)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + Summed.apply(self.out(y), self.group)
        y = F.gelu(self.up(Whole.apply(self.norm2(x), self.group)))
        return x + Summed.apply(self.down(y), self.group)


def train(model: Facts, plan: Facts) -> None:
    """Forwards until no more are alive at once, and the first backward, with all states there."""
    dp, tp, pp, m = (plan[name] for name in ("dp", "tp", "pp", "m"))
    parts, replicas = dist.new_group([*range(tp)]), dist.new_group([*range(0, dp * tp, tp)])
    dtype = torch.bfloat16 if plan["number"] == 2 else torch.float32
    with torch.device("meta"):
        layers = [Layer(model["width"], tp, parts) for _ in range(model["layers"] // pp)]
    here = [layer.to(dtype).to_empty(device=device()) for layer in layers]
    kept = [keep(p, plan, replicas) for layer in here for p in layer.parameters()]
    sequences = model["batch"] // (dp * m)
    alive = []
    for _ in range(plan["alive"]):
        x = torch.empty(sequences, model["sequence"], model["width"], dtype=dtype)
        for layer in here[: plan["computed"]]:
            x = again(layer, x) if plan["checkpoint"] else layer(x)
        alive.append(x.sum())  # what is handed on is not kept
        del x
    if alive and alive[0].requires_grad:
        alive.pop(0).backward()
    assert all(kept)


def keep(p: Tensor, plan: Facts, replicas: Any) -> list[Tensor]:
    """A weight's gradient, its copy in float32 and Adam's two averages, or a share of them."""
    share, zero = -(-p.numel() // plan["dp"]), plan["zero"]
    states = [torch.empty(share if zero else p.numel()) for _ in range(plan["states"])]
    if zero < 2:
        p.grad = torch.empty_like(p)
        return states
    kept = torch.zeros(share, dtype=p.dtype)

    def divide(p: Tensor) -> None:
        mine = torch.empty_like(kept)
        assert p.grad is not None
        dist.reduce_scatter_tensor(mine, p.grad.flatten(), group=replicas)
        kept.add_(mine)
        p.grad = None

    p.register_post_accumulate_grad_hook(divide)
    return [*states, kept]


def bytes_of(model: Facts, plan: Facts) -> int:
    """The most bytes alive on the first rank of the first stage."""
    most = min(plan["m"], plan["pp"]) if plan["schedule"] == "1f1b" else plan["m"]
    usual = {"number": 2, "states": 3, "alive": most, "computed": None}
    return count(json.dumps([model, usual | plan]))


@cache
def count(given: str) -> int:
    model, plan = json.loads(given)
    run = simulate(
        train,
        model,
        plan,
        world_size=plan["dp"] * plan["tp"] * plan["pp"],
        network=Network.nvlink4(),
        backend="nccl",
        gpu=GPU.h100(),
        play=[0],
    )
    return run.memory.peak


LARGER: dict[str, list[Other]] = {
    "float32": [lambda plan: {"number": 4}],
    "master": [lambda plan: {"states": 2}],
    "zero": [
        lambda plan: {"zero": 0},
        lambda plan: {"zero": min(plan["zero"], 1)},
        lambda plan: {"zero": min(2 * plan["zero"], 2)},
    ],
    "order": [
        lambda plan: {"schedule": "gpipe"},
        lambda plan: {"schedule": "1f1b"},
        lambda plan: {"alive": plan["pp"]} if plan["schedule"] == "1f1b" else {},
    ],
    "one-alive": [lambda plan: {"alive": 1}],
    "not-again": [lambda plan: {"checkpoint": False}],
    "keeps-nothing": [lambda plan: {"alive": 1, "computed": 1} if plan["checkpoint"] else {}],
}


def record_memory(model: Facts, plan: Facts) -> Facts:
    """The bytes of a plan, and by each mistake what they would be with it."""
    right = bytes_of(model, plan)
    wrong: dict[str, list[float]] = {
        name: [bytes_of(model, plan | way(plan)) for way in ways] for name, ways in LARGER.items()
    }

    def of_weights(model: Facts = model, **changes: Any) -> int:
        return bytes_of(model, plan | changes | {"alive": 0})

    def of_activations(model: Facts = model, **changes: Any) -> int:
        """What one more micro-batch keeps."""
        one, two = (bytes_of(model, plan | changes | {"alive": n}) for n in (1, 2))
        return two - one

    def of_a_layer(**changes: Any) -> int:
        """What a layer keeps that is not the first: its input has a gradient."""
        changes |= {"checkpoint": False}
        return of_activations(computed=2, **changes) - of_activations(computed=1, **changes)

    dp, tp, m, again = (plan[name] for name in ("dp", "tp", "m", "checkpoint"))
    most = m if plan["schedule"] == "gpipe" else min(m, plan["pp"])
    layers = model["layers"] // plan["pp"]
    all_layers = model | {"layers": model["layers"] * plan["pp"]}
    weights, kept, layer = of_weights(), most * of_activations(), again * of_a_layer()
    whole, whole_layer = most * of_activations(tp=1), again * of_a_layer(tp=1)
    four_each = of_weights(zero=0) - of_weights(zero=0, states=2)
    wrong["whole-model"] = [
        bytes_of(all_layers, plan),
        right + of_weights(all_layers) - weights,
        right + most * of_activations(all_layers) - kept,
    ]
    wrong["m"] = [bytes_of(model | {"batch": n * model["batch"]}, plan) for n in (m, dp, m * dp)]
    wrong["tp"] = [
        right + whole - kept + whole_layer - layer,
        weights + (kept if again else whole / tp) + whole_layer / tp if tp > 1 else right,
        right + of_weights(tp=1) - weights,
    ]
    wrong["float32"] += [
        right + kept + layer,
        weights + (kept + layer) / 2,
        weights + four_each / 2 + kept + layer,
        weights + four_each / 2 / (dp if plan["zero"] == 2 else 1) + kept + layer,
    ]
    wrong["one-more"] = [right + (n - 1) * layer for n in (0, most, layers, layers * most)]
    wrong["units"] = [right / 1e9, right / 2**30]
    return {"given": {"model": model, "plan": plan}, "right": right, "wrong": wrong}


def memory_plan(zero: int, schedule: str, *plan: Any) -> Facts:
    return plan_of(*plan) | {"zero": zero, "schedule": schedule}


def plan_of(dp: int, tp: int, pp: int, m: int, checkpoint: bool = False) -> Facts:
    return {"dp": dp, "tp": tp, "pp": pp, "m": m, "checkpoint": checkpoint}


SMALL = {"layers": 8, "width": 2048, "sequence": 1024, "batch": 16}
WIDE = {"layers": 8, "width": 8192, "sequence": 2048, "batch": 16}
THIN = {"layers": 8, "width": 64, "sequence": 1024, "batch": 24}  # its calls are mostly latency
LONG = {"layers": 16, "width": 2048, "sequence": 16384, "batch": 32}
FAST = {"nodes": 2, "gpus": 8, "flops": 4e14, "intra": [2e-6, 3e11], "inter": [5e-6, 25e9]}
PLAIN = {"nodes": 4, "gpus": 4, "flops": 1.5e14, "intra": [3e-6, 5e10], "inter": [1e-5, 5e9]}
SLOW = {"nodes": 8, "gpus": 2, "flops": 3e13, "intra": [5e-6, 1e10], "inter": [2e-5, 1e9]}
# Left out is tp > 1 where gradients take longer than the backward: on a modelled GPU the groups of
# a rank take turns on its wires, so tp's calls would wait for dp's.
STEPS = [
    (SMALL, FAST, plan_of(1, 1, 1, 1)),
    (LONG, PLAIN, plan_of(1, 1, 1, 4)),
    (WIDE, PLAIN, plan_of(1, 4, 1, 2)),
    (SMALL, SLOW, plan_of(2, 1, 1, 1)),
    (WIDE, PLAIN, plan_of(4, 1, 1, 4)),
    (SMALL, PLAIN, plan_of(1, 1, 4, 8)),
    (SMALL, FAST, plan_of(1, 1, 1, 2, True)),
    (WIDE, PLAIN, plan_of(2, 2, 1, 2)),
    (WIDE, PLAIN, plan_of(8, 1, 1, 1)),
    (WIDE, PLAIN, plan_of(8, 1, 1, 1, True)),
    (WIDE, FAST, plan_of(2, 8, 1, 2)),
    (LONG, FAST, plan_of(4, 4, 1, 2)),
    (LONG, PLAIN, plan_of(4, 4, 1, 2, True)),
    (LONG, PLAIN, plan_of(4, 2, 2, 2)),
    (SMALL, SLOW, plan_of(4, 1, 2, 2)),
    (LONG, SLOW, plan_of(1, 2, 8, 8)),
    (WIDE, FAST, plan_of(2, 4, 2, 4)),
    (WIDE, SLOW, plan_of(4, 1, 4, 2)),
    (WIDE, FAST, plan_of(2, 2, 4, 4, True)),
    (WIDE, PLAIN, plan_of(1, 2, 8, 16)),
    (THIN, SLOW, plan_of(12, 1, 1, 1)),
    (LONG, SLOW, plan_of(2, 2, 4, 2, True)),
    (WIDE, PLAIN, plan_of(1, 8, 2, 1)),
    (WIDE, FAST, plan_of(1, 16, 1, 2)),
]


MID = {"layers": 4, "width": 4096, "sequence": 2048, "batch": 8}
DEEP = {"layers": 8, "width": 2048, "sequence": 4096, "batch": 16}
# Left out are stages where a moment's tensors are a large share: one layer, or few that keep their
# inputs alone.
MEMORY = [
    (MID, memory_plan(0, "1f1b", 1, 1, 1, 8)),
    (MID, memory_plan(0, "1f1b", 1, 1, 1, 1)),
    (MID, memory_plan(1, "1f1b", 4, 1, 1, 2)),
    (MID, memory_plan(2, "1f1b", 4, 1, 1, 2)),
    (DEEP, memory_plan(0, "1f1b", 1, 1, 1, 4, True)),
    (DEEP, memory_plan(0, "1f1b", 1, 1, 4, 8)),
    (DEEP, memory_plan(0, "gpipe", 1, 1, 4, 8)),
    (MID, memory_plan(0, "1f1b", 1, 8, 1, 2)),
    (DEEP, memory_plan(2, "1f1b", 8, 1, 2, 2)),
    (DEEP, memory_plan(0, "1f1b", 2, 1, 4, 2)),
    (DEEP, memory_plan(1, "gpipe", 2, 4, 2, 4, True)),
    (DEEP, memory_plan(2, "1f1b", 8, 2, 1, 1, True)),
    (DEEP, memory_plan(0, "gpipe", 1, 1, 8, 4)),
]

# ---- all plans of a cluster ----------------------------------------------------------------------


def all_plans(model: Facts, cluster: Facts) -> Iterator[Facts]:
    """Every way to use all GPUs, in powers of two."""
    n = cluster["nodes"] * cluster["gpus"]
    sizes = [2**i for i in range(n.bit_length())]
    for dp, tp, pp in product(sizes, repeat=3):
        if dp * tp * pp == n and model["layers"] % pp == 0 and model["batch"] % dp == 0:
            counts = [2**i for i in range(10) if model["batch"] // dp % 2**i == 0]
            for m, checkpointed in product(counts, (False, True)):
                yield plan_of(dp, tp, pp, m, checkpointed)


def record_all(model: Facts, cluster: Facts) -> Facts:
    """Of each plan its numbers, its seconds, and its bytes: as asked, in ZeRO 0, and in GPipe."""
    rows = []
    for plan in all_plans(model, cluster):
        kept = [
            plan | {"zero": z, "schedule": s} for z, s in ((1, "1f1b"), (0, "1f1b"), (1, "gpipe"))
        ]
        seconds = time_of(describe(model, cluster, plan))
        rows.append([*plan.values(), seconds, *(bytes_of(model, each) for each in kept)])
    return {"given": {"model": model, "cluster": cluster}, "plans": rows}


TINY = {"layers": 4, "width": 1024, "sequence": 1024, "batch": 8}
BROAD = {"layers": 4, "width": 8192, "sequence": 2048, "batch": 8}
NEAR = {"nodes": 2, "gpus": 4, "flops": 4e14, "intra": [2e-6, 3e11], "inter": [5e-6, 5e10]}
APART = {"nodes": 4, "gpus": 2, "flops": 1.5e14, "intra": [3e-6, 5e10], "inter": [1e-5, 1.25e10]}
ALONE = {"nodes": 1, "gpus": 8, "flops": 4e14, "intra": [2e-6, 3e11], "inter": [5e-6, 5e10]}
SINGLE = {"nodes": 8, "gpus": 1, "flops": 5e13, "intra": [3e-6, 5e10], "inter": [1e-5, 2.5e9]}
CLUSTERS = [
    (TINY, NEAR | {"memory": 5e8}),
    (TINY, APART | {"memory": 5e8}),
    (TINY, ALONE | {"memory": 2.6e8}),
    (MID, NEAR | {"memory": 3e9}),
    (MID, ALONE | {"memory": 3e9}),
    (MID, ALONE | {"memory": 8e9}),
    (MID, SINGLE | {"memory": 4e9}),
    (BROAD, NEAR | {"memory": 9e9}),
    (BROAD, NEAR | {"memory": 4e10}),
    (BROAD, ALONE | {"memory": 1.8e10}),
    (BROAD, APART | {"memory": 9.5e9}),
    (TINY, NEAR | {"memory": 1.43e8}),
]


def main() -> None:
    parts: dict[str, Any] = {
        "steps": lambda: [record_step(*given) for given in STEPS],
        "memory": lambda: [record_memory(*given) for given in MEMORY],
        "clusters": lambda: [record_all(*given) for given in CLUSTERS],
    }
    made = {part: parts[part]() for part in sys.argv[1:] or parts}
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    table |= made
    TABLE.write_text(json.dumps(table, separators=(",", ":")))


if __name__ == "__main__":
    main()
