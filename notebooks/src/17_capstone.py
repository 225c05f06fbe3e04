# %% [markdown] id="17-4ba48b"
# # Plan a training run
#
# **Say what it costs to train a model, compare the answer with a simulation and with published runs, and choose how to divide the work among GPUs.**
#
# ![A map of plans over the number of GPUs and the size of a transformer: with few GPUs and a small model data parallelism alone is the fastest, with a larger model or more GPUs tensor parallelism joins it, and with thousands of GPUs pipelines; above a line nothing fits. Published runs are drawn into it](../../figures/17_capstone.png)
#
# *Where this goes: the fastest plan for each size of a model and each number of GPUs, by the formulas of this lesson. Points are plans that others have published.*
#
# | | |
# |---|---|
# | **Do** | count the cost of a training run; predict the seconds and the bytes of a plan; run an 8B model at its true size; search all plans for the fastest; turn knobs and see what breaks; train a transformer on real text with data × tensor parallelism |
# | **Learn** | 6·N·D; what each kind of parallelism costs, on one page; what a formula, a simulation and a measurement know; what to do before your first job of many GPUs |
# | **Need** | lessons [13](13_sharding.ipynb), [14](14_tensor_parallel.ipynb) and [15](15_pipeline.ipynb); the cost model of [03](03_cost_model.ipynb) |
# | **Time** | about 75 minutes with the required exercise, 115 with the optional ones as well |
#
# ## One number: 6·N·D
#
# For each token, a matrix product uses each weight once: one multiplication and one addition, so 2 FLOPs. (A FLOP is one operation on floating-point numbers.) Backward makes two such products, for the gradients of input and weight: 4 FLOPs. So training a model of N parameters on D tokens takes about **6·N·D FLOPs**. Attention adds little, unless sequences are long.
#
# The largest Llama 3 has 405 billion parameters and has seen 15.6 trillion tokens. An H100 computes at most 989.5·10¹² FLOPs per second in bfloat16. That is its *peak*, from the data sheet.
#
# **Predict.** How many years would one H100 need at its peak? And the published job took 30.84 million GPU hours: what share of the peak is that?

# %% id="17-9d8799"
import codecs
import itertools
import time
from functools import cache, partial

import torch
from torch import nn
from torch.nn import functional as F
from course_lib import GPU, Network, check, device, draw, run, simulate, span

TERA, GIB, PEAK = 1e12, 2**30, 989.5 * 1e12
guess = None

# %% id="17-a79e72"
flops, seconds = 6 * 405e9 * 15.6 * TERA, 30.84e6 * 3600
years, share = flops / PEAK / (3600 * 24 * 365), flops / seconds / PEAK
print("your guess:", guess, f"  {years:,.0f} years at the peak; published: {share:.0%} of it")
assert round(flops / 1e25, 1) == 3.8 and round(share, 2) == 0.35

# %% [markdown] id="17-ea6f20"
# Meta's paper gives the same 3.8·10²⁵ FLOPs. The share of the peak that a job turns into 6·N·D is its *model FLOPs utilisation*, **MFU**. The paper reports 38% to 43% while the job ran. Where does the rest go?
#
# ## One page of costs
#
# A *plan* divides dp·tp·pp GPUs: dp replicas, each of pp stages, each layer cut into tp parts. A replica takes its share of the batch in m micro-batches of t tokens. From here on D is the width of a layer, except in 6·N·D. A layer has 12·D² parameters, 4·D² in attention and 8·D² in the MLP. A sequence has T tokens.
#
# | | what it costs a GPU | lesson |
# |---|---|---|
# | computing | forward has 2 FLOPs for each weight and token, and 4·t·T·D for attention in each layer; backward has twice as many; with checkpointing forward comes once more | this one, 13 |
# | an all_reduce | 2·⌈log₂ n⌉ latencies, and 2(n − 1)/n of the bytes on each link | 04, 09 |
# | tp | four all_reduces in each layer, of 2·t·D bytes; inside a node | 14 |
# | dp | an all_reduce of each layer's gradient, while the last backward runs | 10 |
# | pp | 2·t·D bytes at each boundary, forward and backward; a bubble of pp − 1 micro-batches | 15 |
# | memory | 16 bytes for each weight, divided as ZeRO's stage says; activations of the micro-batches that are alive | 13, 15 |
#
# ## Your turn: step_seconds
#
# **Required · 17.1 · difficulty ●●○ · about 30 minutes**
#
# **Goal.** The seconds of one training step of a plan, by formulas alone. The three arguments are dictionaries.
#
# | | |
# |---|---|
# | `model` | `layers`, `width` D, `sequence` T, and `batch`: the sequences of a step, on all GPUs |
# | `cluster` | `nodes`, `gpus` in each, `flops` that a GPU computes in a second; `intra` and `inter`: the link of a GPU inside its node and to other nodes, each a pair of latency α in seconds and bandwidth in bytes/s |
# | `plan` | `dp` replicas, `tp` parts of each layer, `pp` stages, `m` micro-batches, and `checkpoint`: whether layers are computed again |
#
# Ranks are numbered by part first, then by replica, then by stage: rank = (stage · dp + replica) · tp + part. Node 0 has the first `gpus` ranks. All numbers that are sent have 2 bytes.
#
# * **Computing.** A micro-batch has batch/(dp·m) sequences, that is t tokens. A layer's forward has 24·t·D² FLOPs for its weights and 4·t·T·D for attention; each of tp ranks computes a tp-th of it. The backward has twice as many. Embedding, output and optimizer are left out.
# * **tp.** A layer has two all_reduces of 2·t·D bytes in forward, and two in backward. Nothing hides them.
# * **Checkpointing.** Before a layer's backward, its whole forward comes once more, with its two all_reduces.
# * **An all_reduce** of S bytes among n ranks takes 2·⌈log₂ n⌉·α + 2·(n − 1)/n · S/bandwidth, and nothing if n is 1. Its link is `intra` if all ranks of its group are on one node, else `inter`. Each GPU has a link of its own, so groups of other GPUs do not disturb it.
# * **Pipeline.** A stage has layers/pp layers. All forwards go through the stages, then all backwards. So a step takes m + pp − 1 times what a micro-batch takes on one stage, forward and backward.
# * **Boundaries.** A hop from a stage to the next takes α + 2·t·D/bandwidth, by `intra` if both ranks are on one node, else by `inter`. Nothing hides it. In each direction a step waits for all hops of one micro-batch, one after another, and then m − 1 times for the slowest hop.
# * **Gradients.** In the last micro-batch's backward, each layer's gradient, 12·D² numbers divided by tp, goes into an all_reduce among the replicas as soon as the layer is done. These all_reduces run one after another, while the backward goes on. Let one of them take d seconds, and a layer's backward b seconds (with its all_reduces, and with the second forward of checkpointing); a stage has L layers. Then the larger of d and L·d − (L − 1)·b is left after the backward.
#
# `check` compares with simulated ranks that compute equally long and make these calls; a difference of 2% is allowed. *Sturdy* adds tp across nodes. No case has tp > 1 and gradients that take longer than the backward: in the simulator, the groups of one rank take turns on its link, and tp's calls would wait for dp's.
#
# <details>
# <summary>Hint: where to begin</summary>
#
# Write a function for the link of two ranks, and one for an all_reduce. Then a layer's forward and backward, in seconds. `check` begins with one GPU, and adds one kind of parallelism after the other.
#
# </details>
# <details>
# <summary>Hint: who is in a group</summary>
#
# The first tp group is ranks 0 to tp − 1. The first dp group has ranks 0, tp, 2·tp, …: its last is (dp − 1)·tp. The first rank of stage s is s·dp·tp.
#
# </details>

# %% exercise="step_seconds" role="answer" points=14 required=true difficulty=2
def step_seconds(model: dict, cluster: dict, plan: dict) -> float:
    """Seconds of one training step of the model on the cluster, by this plan.

    model has "layers", "width", "sequence" and "batch"; cluster has "nodes", "gpus", "flops",
    "intra" and "inter", each of the two (latency, bandwidth); plan has "dp", "tp", "pp", "m" and
    "checkpoint". It asks nobody: a plain function.
    """
    ### BEGIN SOLUTION
    dp, tp, pp, m = (plan[name] for name in ("dp", "tp", "pp", "m"))

    def link(one, other):
        inside = one // cluster["gpus"] == other // cluster["gpus"]
        return cluster["intra" if inside else "inter"]

    def all_reduce(n, nbytes, last):
        latency, bandwidth = link(0, last)
        return 2 * (n - 1).bit_length() * latency + 2 * (n - 1) / n * nbytes / bandwidth

    layers, width, sequence = model["layers"] // pp, model["width"], model["sequence"]
    tokens = model["batch"] // (dp * m) * sequence
    flops = 24 * tokens * width**2 + 4 * tokens * sequence * width
    computing = flops / tp / cluster["flops"]
    talking = 2 * all_reduce(tp, 2 * tokens * width, tp - 1)
    forward = computing + talking
    backward = 2 * computing + talking + plan["checkpoint"] * forward
    hops = [0.0]
    for stage in range(1, pp):
        latency, bandwidth = link((stage - 1) * dp * tp, stage * dp * tp)
        hops.append(latency + 2 * tokens * width / bandwidth)
    gradient = all_reduce(dp, 2 * 12 * width**2 / tp, (dp - 1) * tp)
    left = max(gradient, layers * gradient - (layers - 1) * backward)
    stages = (m + pp - 1) * layers * (forward + backward)
    return stages + 2 * (sum(hops) + (m - 1) * max(hops)) + left
    ### END SOLUTION

# %% exercise="step_seconds" role="try"
a_model = {"layers": 32, "width": 4096, "sequence": 4096, "batch": 64}
a_cluster = {"nodes": 4, "gpus": 8, "flops": 4e14, "intra": (2e-6, 3e11), "inter": (5e-6, 5e10)}
for dp, tp, pp, m in [(32, 1, 1, 1), (4, 8, 1, 4), (2, 4, 4, 8)]:
    a_plan = {"dp": dp, "tp": tp, "pp": pp, "m": m, "checkpoint": False}
    print(a_plan, f"{step_seconds(a_model, a_cluster, a_plan):.3f} s")

# %% exercise="step_seconds" role="check"
check(step_seconds)

# %% [markdown] id="17-a7c5d3"
# A formula knows only what it was told. What is missing?
#
# ## True size: an 8B model on a laptop
#
# Here is Llama 3.1 8B in plain PyTorch. (`turned` rotates queries and keys by their places.) `simulate(…, gpu=…)` runs it at its **true size**: tensors have shapes and no values. A kernel takes the longer of two times: its FLOPs over 62% of the peak, or its bytes over 85% of the memory's bandwidth. `play=[0]` plays rank 0 alone, because all do the same.

# %% id="17-66152f"
class Layer(nn.Module):
    def __init__(self, d=4096, heads=32, groups=8, hidden=14336):
        super().__init__()
        linear, self.size = partial(nn.Linear, bias=False), d // heads
        self.repeats = heads // groups
        self.q, self.o = linear(d, d), linear(d, d)
        self.k, self.v = (linear(d, groups * self.size) for _ in range(2))
        self.gate, self.up, self.down = linear(d, hidden), linear(d, hidden), linear(hidden, d)
        self.norm, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)

    def attend(self, x, turns):
        q, k, v = (f(x).unflatten(2, (-1, self.size)) for f in (self.q, self.k, self.v))
        q, k = turned(q, turns), turned(k, turns)
        k, v = (t.repeat_interleave(self.repeats, dim=2) for t in (k, v))
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))

    def forward(self, x, turns):
        x = x + self.attend(self.norm(x), turns)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

def turned(x, turns):
    pairs = torch.view_as_complex(x.float().unflatten(3, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)

# %% id="17-a36186"
class Llama(nn.Module):
    def __init__(self, layers, words=128256, d=4096, **sizes):
        super().__init__()
        self.embedding, self.out = nn.Embedding(words, d), nn.Linear(d, words, bias=False)
        self.layers = nn.ModuleList(Layer(d, **sizes) for _ in range(layers))
        self.norm = nn.RMSNorm(d)

    def forward(self, tokens, turns):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, turns)
        return self.out(self.norm(x))

with torch.device("meta"):
    one, two = (sum(p.numel() for p in Llama(layers).parameters()) for layers in (1, 2))
parameters = one + 31 * (two - one)
print(f"{parameters:,} parameters")
assert parameters == 8_030_261_248

# %% [markdown] id="17-659e63"
# We train it as torchtitan, PyTorch's reference for large models, did in a published benchmark on eight H100s: `fully_shard`, bfloat16, gradients reduced in float32, two sequences of 8,192 tokens on each GPU. Selective checkpointing keeps attention and every second matrix product, and computes the rest again. We begin with two layers. (Guess before you run: which kernels take the most time after matrix products?)

# %% id="17-daafa6"
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import (CheckpointPolicy, checkpoint,
                                    create_selective_checkpoint_contexts)

def choose():
    seen = [0, 0]  # matrix products so far: in forward, and when they come again
    def policy(context, operator, *_, **__):
        product = operator is torch.ops.aten.mm.default
        seen[context.is_recompute] += product
        keeps = seen[context.is_recompute] % 2 if product else "attention" in str(operator)
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE
    return create_selective_checkpoint_contexts(policy)

def sharded(layers, forgets):
    policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
    with torch.device("meta"):
        model = Llama(layers)
    for layer in model.layers:
        if forgets:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False,
                                    context_fn=choose)
        fully_shard(layer, mp_policy=policy)
    return fully_shard(model, mp_policy=policy).to_empty(device=device())

# %% id="17-64a6f5"
def step(layers, batch=2, forgets=True):
    model = sharded(layers, forgets)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for p in model.parameters():  # one update, so that Adam's averages are there
        p.grad = torch.zeros_like(p)
    optimizer.step()
    optimizer.zero_grad()
    tokens = torch.zeros(batch, 8192, dtype=torch.long)
    turns = torch.zeros(8192, 1, 64, dtype=torch.complex64)
    torch.get_device_module(device()).synchronize()
    start = time.perf_counter()
    with span("forward"):
        loss = F.cross_entropy(model(tokens, turns).flatten(0, 1).float(), tokens.flatten())
    with span("backward"):
        loss.backward()
    with span("update"):
        optimizer.step()
        optimizer.zero_grad()
    torch.get_device_module(device()).synchronize()
    return time.perf_counter() - start

# %% id="17-888f9c"
H100 = GPU.h100(memory=95 * GIB, bandwidth=2.4e12, matmul_efficiency=0.62,
                memory_efficiency=0.85)

@cache
def llama(layers, *options, node=8, slower=1):
    inside, between = Network(5e-6, 370e9 / slower), Network(10e-6, node * 45e9 / slower)
    return simulate(step, layers, *options, world_size=8, backend="nccl", gpu=H100, play=[0],
                    network=Network.cluster(8 // node, node, inside, between))

two = llama(2)
two.kernels[0]

# %% id="17-235992"
draw.timeline(two, caption="One update and one step of two layers at their true size, simulated, "
              "for one of eight GPUs: collectives (below) run beside the computing.")

# %% id="17-3e005b"
assert 16_384 * 128_256 * 4 == 8_405_385_216
draw.memory(two, unit=("GiB", GIB), caption="The same step in bytes on one GPU. First comes an "
            "update, for Adam's averages. The peak is where the logits of all words are alive.")

# %% [markdown] id="17-e3a44e"
# Products take about half of the time. Most other kernels compute hardly anything and move bytes: conversions between float32 and bfloat16 (`to_copy`), products element by element (`mul`), and the softmax over 128,256 words. Talking costs nearly nothing, because it runs beside the computing: only the first gather and the last reduce_scatter are waited for. The peak of memory is not in a layer. For 16,384 tokens the logits of all words take 8.4 GB in float32, and three such tensors are alive at once.
#
# ## Three looks at one run
#
# All layers are alike. So 32 layers cost what one layer costs, plus 31 times what a second one adds, in seconds and in bytes. (The whole model, simulated in half a minute, gives the same numbers.)

# %% id="17-b90747"
def whole(batch=2, forgets=True, **more):
    """Tokens per second and GPU, and GiB at the peak, of the model with 32 layers."""
    jobs = [llama(layers, batch, forgets, **more) for layers in (1, 2)]
    pairs = [[job.results[0] for job in jobs], [job.memory.peak for job in jobs]]
    seconds, nbytes = (one + 31 * (two - one) for one, two in pairs)
    return batch * 8192 / seconds, nbytes / GIB

# %% id="17-3c3d3a"
rate, gib = whole()
looks = {"6·N·D at the peak": PEAK / (6 * parameters),
         "6·N·D at 62% of it": 0.62 * PEAK / (6 * parameters),
         "true size, simulated": rate, "published, measured": 5762}
print(f"alive at the peak: {gib:.1f} GiB simulated; reserved: 82.4 GiB published")
assert 1 < rate / 5762 < 1.2 and 0.8 < gib / 82.4 < 1
draw.bars(looks, "tokens/s", exact=True, caption="The same job in three looks, for each of eight "
          "GPUs: the formula, the simulation, and torchtitan's measurement.")

# %% [markdown] id="17-6a2654"
# No product reaches the peak; 62% is usual. Half of that is lost: to attention, to what is computed again, and to kernels that only move bytes. The formula knows none of these. The simulation knows all, and is still a little too fast: its host is never late, and all its kernels of a kind are equally good. An allocator *reserves* more than what is *alive*. Nothing was fitted.
#
# | tokens/s for each GPU | published | true size |
# |---|---|---|
# | Llama 3.1 8B, 8 GPUs (the cell) | 5,762 | 6,529 |
# | the same on 128 GPUs | 5,605 | 6,625 |
# | Llama 3.1 8B, 64 GPUs: data 8 × tensor 8; published compiled | 4,378 | 3,945 |
# | Llama 3.1 70B, 256 GPUs: data 32 × tensor 8; published compiled | 597 | 578 |
#
# The last two rows were computed from one layer and from three, without a compiler.
#
# What is a formula good for, then? Tell it what a GPU *sustains*, measured or simulated, in place of the peak. Then it can compare plans, because it knows how they differ.
#
# ## Your turn: memory_bytes
#
# **Optional · 17.2 · difficulty ●●○ · about 20 minutes**
#
# **Goal.** The most bytes that are ever alive on a GPU of the first stage, which has more than the others. The plan has two entries more: `zero` is 0, 1 or 2, and `schedule` is `"gpipe"` or `"1f1b"`.
#
# * **Weights.** A layer has 12·D² of them, divided by tp; a stage has layers/pp layers. Each has 2 bytes, and a gradient of 2 bytes that is always there. Embedding and output are left out.
# * **States.** A copy in float32 and Adam's two averages: 12 bytes for each weight. In stage 1 of ZeRO a rank has a dp-th of the states; in stage 2 it has a dp-th of states and gradients. Stage 3 is left out.
# * **Activations.** For backward a layer keeps 16·D numbers for each of the t tokens of a micro-batch. Every rank of tp has 4·D of them (the inputs and outputs of two normalisations). The other 12·D are divided by tp (queries, keys, values, the output of attention; the hidden layer, 4·D wide, before and after its activation function). A number has 2 bytes.
# * **How many micro-batches.** GPipe has all m alive at once; in 1F1B the first stage has pp, and never more than m.
# * **Checkpointing.** For each micro-batch that is alive, a layer keeps only its input, D numbers for each token. While a layer is computed again, all of *its* activations come on top, for one micro-batch.
#
# `check` counts the bytes of real layers at their true size, with plain PyTorch on a modelled GPU; 5% is allowed, for what lives only for a moment. *Sturdy* adds a deep pipeline, and stage 2 with checkpointing.
#
# <details>
# <summary>Hint: where to begin</summary>
#
# Three sums: what belongs to the weights, what a micro-batch keeps, and what is there once. Multiply only the second by the number of micro-batches that are alive.
#
# </details>

# %% exercise="memory_bytes" role="answer" points=8 required=false difficulty=2
def memory_bytes(model: dict, plan: dict) -> int:
    """The most bytes on a GPU of the first stage.

    model and plan are those of step_seconds; the plan also has "zero" (0, 1, 2) and "schedule"
    ("gpipe", "1f1b").
    """
    ### BEGIN SOLUTION
    dp, tp, pp, m = (plan[name] for name in ("dp", "tp", "pp", "m"))
    layers, width = model["layers"] // pp, model["width"]
    weights = layers * 12 * width**2 // tp
    gradients = 2 * weights // (dp if plan["zero"] == 2 else 1)
    states = 12 * weights // (dp if plan["zero"] else 1)
    tokens = model["batch"] // (dp * m) * model["sequence"]
    layer = 2 * tokens * (4 * width + 12 * width // tp)
    alive = m if plan["schedule"] == "gpipe" else min(m, pp)
    if plan["checkpoint"]:
        activations = alive * layers * 2 * tokens * width + layer
    else:
        activations = alive * layers * layer
    return 2 * weights + gradients + states + activations
    ### END SOLUTION

# %% exercise="memory_bytes" role="try"
for schedule, again in [("gpipe", False), ("1f1b", False), ("1f1b", True)]:
    a_plan |= {"zero": 1, "schedule": schedule, "checkpoint": again}
    print(schedule, again, f"{memory_bytes(a_model, a_plan) / 1e9:.1f} GB")

# %% exercise="memory_bytes" role="check"
check(memory_bytes)

# %% [markdown] id="17-4056dd"
# ## Your turn: best_plan
#
# **Optional · 17.3 · difficulty ●●○ · about 20 minutes**
#
# **Goal.** The fastest plan that fits. It uses every GPU: dp·tp·pp is their number, and all three are powers of two; so is m. pp divides the layers, and dp·m divides the batch. The cluster has one entry more: `memory`, the bytes of a GPU. ZeRO is in stage 1, and the schedule is 1F1B. Return `dp`, `tp`, `pp`, `m` and `checkpoint` in a dictionary.
#
# For each plan `check` knows how long simulated ranks take, and what layers at their true size hold. A plan is right if it fits, and takes at most 2% longer than the fastest that fits. (A plan that needs up to 15% more or less than a GPU's memory is neither expected nor refused.) You may call your two functions.
#
# <details>
# <summary>Hint: how many plans are there?</summary>
#
# A few dozen here, and a few thousand on the largest clusters. So try them all: `min(plans, key=…)`.
#
# </details>

# %% exercise="best_plan" role="answer" points=8 required=false difficulty=2
def best_plan(model: dict, cluster: dict) -> dict:
    """The fastest plan that fits: "dp", "tp", "pp", "m" and "checkpoint".

    cluster is that of step_seconds, and has "memory", the bytes of a GPU.
    """
    ### BEGIN SOLUTION
    fits, n = [], cluster["nodes"] * cluster["gpus"]
    sizes = [2**i for i in range(20)]
    for dp, tp, m in itertools.product(sizes, repeat=3):
        pp = n // (dp * tp)
        if pp == 0 or model["layers"] % pp or model["batch"] % (dp * m):
            continue
        for again in (False, True):
            plan = {"dp": dp, "tp": tp, "pp": pp, "m": m, "checkpoint": again}
            kept = memory_bytes(model, plan | {"zero": 1, "schedule": "1f1b"})
            if kept <= cluster["memory"]:
                fits.append(plan)
    return min(fits, key=lambda plan: step_seconds(model, cluster, plan))
    ### END SOLUTION

# %% exercise="best_plan" role="try"
best_plan(a_model, a_cluster | {"memory": 80e9})

# %% exercise="best_plan" role="check"
check(best_plan)

# %% [markdown] id="17-69ce8b"
# ## The map
#
# Which kind of plan wins, for which model and how many GPUs? Ask the formulas, without latencies and boundaries, and with all activations cut by tp (sequence parallelism). Models have D/128 layers of width D, as most large ones do. A step takes 512 sequences of 8,192 tokens, one in a micro-batch. GPUs have 80 GiB and sustain 400·10¹² FLOPs per second, eight to a node. Without a pipeline, parameters are divided, too, and gathered for each micro-batch (ZeRO 3).

# %% id="17-ac9c29"
def predict(D, dp, tp, pp, forgets, T=8192, batch=512, inside=370e9, between=45e9):
    """Seconds of a step, and bytes on a GPU."""
    layers, m, part = D / 128 / pp, batch / dp, 12 * D**2 / tp
    forward = (24 * T * D**2 + 4 * T**2 * D) / tp / 400e12
    talk = 2 * 2 * (tp - 1) / tp * 2 * T * D / inside  # two all_reduces
    one = layers * ((3 + forgets) * forward + (2 + forgets) * talk)
    gathers = 2 * (dp - 1) / dp * 2 * layers * part / (inside if dp * tp <= 8 else between)
    kept = 2 * 16 * T * D / tp  # bytes of a layer, all of it cut: sequence parallelism
    alive = min(m, pp) * layers * (2 * T * D / tp if forgets else kept) + forgets * kept
    if pp == 1:
        return m * max(one, 1.5 * gathers), 16 * layers * part / dp + 4 * part + alive
    hidden = layers * (2 + forgets) * forward  # behind the last backward
    seconds = (m + pp - 1) * one + max(0, gathers - hidden)
    return seconds, (4 + 12 / dp) * layers * part + alive

# %% id="17-0c08d8"
def fastest(D, n):
    plans = [(n // tp // pp, tp, pp, forgets) for tp in (1, 2, 4, 8) for forgets in (False, True)
             for pp in (1, 2, 4, 8, 16, 32, 64) if pp <= D / 128 and 1 <= n // tp // pp <= 512]
    costs = [(*predict(D, *plan), plan) for plan in plans]
    return min(((s, plan) for s, nbytes, plan in costs if nbytes <= 80 * GIB), default=None)

def kind(found):
    parts = zip(("data", "tensor", "pipeline"), found[1] if found else (), strict=False)
    return " × ".join(name for name, ways in parts if ways > 1) or "nothing fits"

GPUS = [2**k for k in range(3, 15)]
rows = {12 * D**3 / 128: [kind(fastest(D, n)) for n in GPUS]
        for D in (2 ** (k / 8) for k in range(84, 121))}
PLANS = {"data": [(8, 8e9), (128, 8e9)], "data × tensor": [(256, 70e9)],
         "data × tensor × pipeline": [(512, 405e9), (16384, 405e9)]}
longer = predict(16384, 8, 8, 8, True)[0] / fastest(16384, 512)[0]
assert 1.4 < longer < 1.6
draw.areas(GPUS, rows, PLANS, "GPUs", "parameters", caption="The fastest plan that fits, by "
           "formulas, for steps of 4 million tokens. Points: plans that others have published.")

# %% [markdown] id="17-7a757a"
# From left to right: as long as there is a sequence for each GPU, and its activations fit, data parallelism alone is the fastest. Where they do not fit, tensor parallelism joins in, for memory and not for speed. With more than 512 GPUs, several have to share a sequence: up to eight by tensor parallelism, inside a node, and more by a pipeline. Stripes are where plans are about equally fast.
#
# Four published plans lie in their own colour. The fifth, 405 billion parameters on 512 GPUs, was made to compare schedules of pipelines: by the formulas it takes one and a half times as long as the fastest.
#
# ## Break it: turn one knob
#
# Turn one knob of the published job at a time: links of half the speed; two nodes of four GPUs; a batch of one sequence; no checkpointing.
#
# **Predict.** Which of the four breaks the job, and which one costs the most speed?

# %% id="17-747b68"
guess = None

# %% id="17-5da16a"
found = {"as published": whole(), "half the network": whole(slower=2),
         "nodes of 4": whole(node=4), "batch of 1": whole(batch=1),
         "no checkpointing": whole(forgets=False)}
print("your guess:", guess, *(f"\n{name:<16} {rate:6,.0f} tokens/s {gib:6.1f} GiB"
                              for name, (rate, gib) in found.items()))

# %% id="17-ff70f1"
assert [name for name, (_, gib) in found.items() if gib > 95] == ["no checkpointing"]
assert round(min(rate for rate, _ in found.values()) / found["as published"][0], 2) == 0.96
assert min(found, key=found.get) == "batch of 1"
draw.bars({name: gib for name, (_, gib) in found.items()}, "GiB", exact=True, caption="The most "
          "bytes that are alive on a GPU that has 95 GiB: memory breaks first.")

# %% [markdown] id="17-e082e0"
# Memory breaks first: without checkpointing the job is the fastest, and does not fit. The network hardly counts. A layer's messages take a fraction of the time in which it computes 16,384 tokens, and stay hidden at half the speed. A batch of one costs the most speed, and still keeps 96% of it: it halves the computing, but not the messages.
#
# ## A real one: data 2 × tensor 2
#
# A simulation without values cannot say whether a result is right. So the same `Llama`, with two layers of width 64, now learns real text on four real ranks: two replicas (`fully_shard`, lesson 13), each cut into two parts (`parallelize_module`, lesson 14). The text comes with every Python.

# %% id="17-2913d6"
import this

TEXT = codecs.decode(this.s, "rot13")
LETTERS = sorted(set(TEXT))
data = torch.tensor([LETTERS.index(letter) for letter in TEXT])

# %% id="17-9c6075"
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

CUT = (dict.fromkeys(["q", "k", "v", "gate", "up"], ColwiseParallel())
       | dict.fromkeys(["o", "down"], RowwiseParallel()))

def divide(model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    for layer in model.layers:
        parallelize_module(layer, mesh["tensor"], CUT)
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    return mesh.get_local_rank("data"), 2

# %% id="17-bdfdb9"
def learn(divided=False, steps=12, length=64):
    torch.manual_seed(0)
    model = Llama(2, len(LETTERS), d=64, heads=4, groups=2, hidden=128)
    replica, replicas = divide(model) if divided else (0, 1)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=5e-3), []
    angles = torch.outer(torch.arange(length), 100 ** -torch.arange(0, 1, 1 / 8))
    turns, places = torch.polar(torch.ones(length, 8), angles)[:, None], torch.arange(length + 1)
    torch.manual_seed(1)
    for starts in torch.randint(len(data) - length, (steps, 16, 1)):
        rows = data[starts[replica::replicas] + places]
        loss = F.cross_entropy(model(rows[:, :-1], turns).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses

# %% id="17-d34321"
alone, job = learn(), run(learn, True, world_size=4)
together = [sum(losses) / 4 for losses in zip(*job.results, strict=True)]
assert max(abs(a - b) for a, b in zip(alone, together, strict=True)) < 1e-5
assert alone[-1] < 0.7 * alone[0]
draw.lines({"data 2 × tensor 2": (range(1, 13), together), "one process": (range(1, 13), alone)},
           "step", "loss", formulas=["one process"], caption="Four real ranks and one process: the "
           "losses agree to five digits.")

# %% [markdown] id="17-c6edf1"
# The sums have another order, no rank has all weights, and the losses are the same. That is the test to write for a parallel model of your own: one process as the reference, a few steps, five digits.
#
# ## Less than exact sums
#
# This course sends exact sums: a replica of the 8B model puts 2·2·N bytes, about 32 GB, on its link in each step. Others send less. **Local steps**: each replica trains alone for H steps, then the ranks average how far their weights have moved. DiLoCo (2023) takes H = 500, which is 64 MB per step, and reports a loss as good. **Compressed gradients**: PowerSGD (2019), a hook of DDP, sends two thin matrices for each gradient, r·(a + b) numbers in place of a·b. For 4,096 × 14,336 and r = 4 that is about 800 times less. What was lost is added to the next gradient. Both change the training, so compare the losses, over many more steps than above.
#
# ## In practice: your first job on many GPUs
#
# We have measured nothing on a GPU in this course. You will.
#
# 1. **Write the plan down**: N, tokens, dp × tp × pp, m, seconds, bytes. Simulate a step at true size: does it fit?
# 2. **Prove it small**: a few ranks under `run`, losses against one process, gradients by `compare_gradients`.
# 3. **Look at the machine**: `python -m course_lib doctor`, then this repository's `make gpu`, which measures bandwidth and overlap, and runs the exercises on NCCL. Correct the plan by its report.
# 4. **Rehearse**: `python -m course_lib.rehearse --nodes 2 --gpus 8 train.py` plays the script for GPUs on your laptop, and names the line where it would hang.
# 5. **Save**: a checkpoint that restores all that lesson 12 names, as often as its formula says. Kill a rank on purpose, on the first day.
# 6. **Watch**: `torchrun … -m course_lib.watch train.py` says who waits for whom.
# 7. **Compare**: tokens per second with the plan. If they are far below, the plan is wrong or the job is. A trace says which.
#
# ## Roads not taken
#
# * **More dimensions.** A sequence can be divided (lesson 14's ring), and so can experts (lesson 16).
# * **Fewer bits.** Products in 8 bits double the peak, and need scales that follow the numbers.
# * **A compiler.** `torch.compile` fuses the kernels that move bytes. The published job gained 16% by it.
#
# ## What you can do now
#
# * ☑ say what it costs to train a model;
# * ☑ predict the seconds and the bytes of a plan, search for the fastest that fits, and say what breaks first;
# * ☑ run a model at its true size on a laptop, and read where time and memory go;
# * ☑ say what a formula, a simulation and a measurement each leave out;
# * ☑ train a transformer with data × tensor parallelism, and prove that it is the same training;
# * ☑ prepare your first job on many GPUs.
#
# **And since lesson 00:** start ranks and let them find one another; build every collective from send and receive; predict what talking costs; write DDP, a sharded optimizer, tensor and pipeline parallelism, and a layer of experts; read a hang like a sentence; bring a job through the death of any rank. That was the course. What is missing is a job of your own.
#
# ## Sources
#
# * J. Kaplan and others, *Scaling Laws for Neural Language Models*, 2020, [arXiv:2001.08361](https://arxiv.org/abs/2001.08361) (6·N·D)
# * A. Chowdhery and others, *PaLM*, 2022, [arXiv:2204.02311](https://arxiv.org/abs/2204.02311) (MFU)
# * Llama team, *The Llama 3 Herd of Models*, 2024, [arXiv:2407.21783](https://arxiv.org/abs/2407.21783) (405 billion parameters, tokens, FLOPs, plans, MFU); GPU hours: [model card of Llama 3.1](https://github.com/meta-llama/llama-models/blob/main/models/llama3_1/MODEL_CARD.md)
# * torchtitan, [*Llama 3.1 on H100s*](https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md), 2024 (tables 1 and 3 to 5), and [*Async TP*](https://github.com/pytorch/torchtitan/blob/main/benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md), 2025 (the plans with tensor parallelism)
# * V. Korthikanti and others, *Reducing Activation Recomputation in Large Transformer Models*, 2022, [arXiv:2205.05198](https://arxiv.org/abs/2205.05198) (what a layer keeps; sequence parallelism)
# * D. Narayanan and others, *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM*, 2021, [arXiv:2104.04473](https://arxiv.org/abs/2104.04473) (how the dimensions combine)
# * NVIDIA, [*H100 data sheet*](https://www.nvidia.com/en-us/data-center/h100/) (peak; with sparsity it is twice as high)
# * A. Douillard and others, *DiLoCo: Distributed Low-Communication Training of Language Models*, 2023, [arXiv:2311.08105](https://arxiv.org/abs/2311.08105)
# * T. Vogels and others, *PowerSGD*, 2019, [arXiv:1905.13727](https://arxiv.org/abs/1905.13727)
# * T. Peters, *The Zen of Python*, 2004, [PEP 20](https://peps.python.org/pep-0020/), in the public domain
#
# ## Where to read on
#
# * J. Austin and others, [*How to Scale Your Model*](https://jax-ml.github.io/scaling-book/), 2025: the same questions for TPUs.
# * N. Tazi and others, [*The Ultra-Scale Playbook*](https://huggingface.co/spaces/nanotron/ultrascale-playbook), 2025: measured plans.
# * S. Bekman, [*Machine Learning Engineering*](https://github.com/stas00/ml-engineering): what goes wrong on real clusters.
# * [torchtitan](https://github.com/pytorch/torchtitan) and [Megatron-LM](https://github.com/NVIDIA/Megatron-LM): all dimensions in one program.
