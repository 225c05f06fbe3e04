# %% [markdown] id="13-a6a109"
# # Hold a model that no rank could hold
#
# **Count what training keeps in memory, divide it among the ranks in three steps, and gather each layer just in time; then `fully_shard`.**
#
# ![Bytes alive on one of four ranks during three training steps, four panels on one scale, in units of the parameters: with everything repeated the steps climb to more than four times the parameters; with states, gradients and at last parameters divided each panel is lower, and the last one stays below two](../../figures/13_sharding.png)
#
# *Where this goes: three training steps of the same model on four ranks, operator by operator. From top to bottom more is divided: nothing; Adam's averages; gradients as well; everything.*
#
# | | |
# |---|---|
# | **Do** | count the bytes that a step keeps alive; cut an all-reduce in two; build the three stages of ZeRO and compare each with its formula; gather a weight, use it, free it; prefetch; then use `fully_shard`, and misuse it; clip a gradient that no rank has whole |
# | **Learn** | what a parameter costs; why dividing it costs no more bytes, until the last stage; what `meta`, checkpointing and `reshard_after_forward` buy; which tensors hold your memory |
# | **Need** | lessons [06](06_ddp.ipynb) (DDP), [07](07_gpus.ipynb) (streams), [08](08_groups.ipynb) (meshes) and [10](10_mini_ddp.ipynb) (a gradient through a collective) |
# | **Time** | about 120 minutes with the required exercise, 200 with the optional ones as well |
#
# ## Where memory goes
#
# Take one parameter, a float32 of 4 bytes. Its gradient takes 4 more. Adam keeps two averages, 8 bytes. That makes **16 bytes**. Let P be the bytes of all parameters. Training with Adam holds P + P + 2P = 4P. Between steps the gradients, P, can be freed. In *mixed precision* a parameter takes 16 bytes, too: 2 for the weight, 2 for its gradient, and 12 for what Adam keeps. These are two averages and a float32 copy of the weight, the *master weight*. So a model of 7 billion parameters needs 112 GB, activations not counted.
#
# `count_memory(model, optimizer)` counts the bytes of all tensors that are alive on a rank, each storage once. Hand it the tensors that exist already. `memory.peak` is the largest number so far; `memory.at_rest()` is what stays alive once Python and the backend have dropped what they no longer need.
#
# Each rank has a tower of eight square layers. Gradients are averaged by hand (lesson 05) or by DDP.
#
# **Predict.** By hand, 3P stay alive between two steps: the parameters and Adam's averages. How many P does DDP keep?

# %% id="13-b6b16d"
import torch
import torch.distributed as dist
from torch import Tensor, nn
from course_lib import (Deadlock, Network, RankFailed, check, compute, count_memory, draw,
                        expect, run, simulate, span)

guess = None

# %% id="13-5db4f4"
from functools import partial
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

n, width, depth = 4, 128, 8  # ranks, units of a layer, layers
layer, P = 4 * width**2, 4 * width**2 * depth  # bytes of a layer's parameters, and of all

def tower():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(depth)))

def adam(parameters):
    return torch.optim.Adam(parameters, foreach=False)

def by_hand():
    model = tower()
    def average():
        for p in model.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    return model, adam(model.parameters()), average

def ddp(**options):
    model = DistributedDataParallel(tower(), **options)
    return model, adam(model.parameters()), lambda: None

# %% id="13-327ff3"
def train(make):
    model, optimizer, finish = make()
    x = torch.full((1, width), 1.0 + dist.get_rank())
    with count_memory(model, optimizer, x) as memory:
        for _ in range(3):  # the last one counts: then averages and buckets are there
            dist.barrier()
            memory.reset_peak()
            with span("forward"):
                loss = model(x).square().sum()
            between = memory.at_rest()
            with span("backward"):
                loss.backward()
            ended = memory.at_rest()
            finish()
            with span("step"):
                optimizer.step()
                optimizer.zero_grad()
            del loss
        dist.barrier()
        counted = [nbytes / P for nbytes in (between, ended, memory.peak, memory.at_rest())]
    weights = [p.detach().clone() for p in map(whole, model.parameters())]
    return counted, weights, memory.largest(99, at_peak=True)

def whole(p):  # fully_shard's parameters are DTensors: a rank's part, and where it belongs
    return p.full_tensor() if hasattr(p, "full_tensor") else p  # gathers all parts

# %% id="13-d7b024"
def sent(job, rank=0):
    """Bytes that a rank sends between its last two barriers, in P, on average over the ranks."""
    calls = job.trace.of(rank)
    ends = [k for k, call in enumerate(calls) if call.op == "barrier"][-2:]
    times = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "broadcast": 1}
    return sum(times[name] * call.nbytes * (n - 1) / n for call in calls[slice(*ends)]
               for name in times if call.op.startswith(name)) / P

hand, wrapped = (simulate(train, make, world_size=n) for make in (by_hand, ddp))
rests = [round(job.results[0][0][3], 2) for job in (hand, wrapped)]
print("your guess:", guess, "  at rest, in P, by hand and with DDP:", *rests)
assert rests == [3.0, 4.0]
assert sent(hand) == sent(wrapped) == 2 * (n - 1) / n
draw.memory(hand, wrapped, titles=["gradients averaged by hand", "DDP"], unit=("P", P),
            caption="Three steps of training on one of four ranks. DDP also keeps its buckets, "
            "beside the gradients.")

# %% [markdown] id="13-8cafdc"
# DDP keeps its buckets, too, which are as large as all gradients together: that makes 4P.
#
# ## A staircase
#
# The curve rises or falls where an operator made or freed a tensor. In *forward* each layer's output is added, which is small here. In *backward* each layer adds its gradient, P in all. In *step* Adam makes scratch tensors, one layer at a time, and then the gradients are freed. The peak comes just before they are freed: P + P + 2P, and Adam's scratch tensors of one layer.
#
# ## An all_reduce, cut in two
#
# All ranks keep the same averages and make the same update. Why not divide this work? Rank r could own a quarter of each parameter tensor, keep Adam's averages for it, and update it. It needs the mean gradient of *its* quarter: a `reduce_scatter`. Then everybody needs everybody's quarter: an `all_gather`.
#
# A ring `all_reduce` *is* these two, one after the other (lesson 04). In each of the two, a rank sends (n − 1)/n of the bytes. The update moves in between. **So dividing Adam's averages costs no more bytes than an all_reduce.**
#
# ## Three stages
#
# *ZeRO* (Rajbhandari and others, 2020) names what is divided. The table shows what is alive when backward is over:
#
# | stage | divided | parameters | gradients | Adam's averages | together, n = 4 |
# |---|---|---|---|---|---|
# | 0: DDP | nothing | P | P | 2P | 4 P |
# | 1 | averages | P | P | 2P/n | 2.5 P |
# | 2 | and gradients | P | P/n | 2P/n | 1.75 P |
# | 3 | and parameters | P/n | P/n | 2P/n | 1 P |
#
# Stage 1 needs two loops: one after backward reduces and scatters, and one after the update gathers. Below, a rank's part of a layer is a view, a slice of the layer's flat memory. Stage 2 does the first loop's work in a hook, as soon as a gradient is there, and frees the gradient at once. Stage 3 keeps only parts of the parameters, and gathers a layer when it is used, as `fully_shard` does. Guess: which stage sends more than DDP?

# %% id="13-f46b2d"
def stage(number):
    model, rank = tower(), dist.get_rank()
    parts = {p: nn.Parameter(p.detach().view(-1).chunk(n)[rank])  # a view: no memory of its own
             for p in model.parameters()}
    def reduce(p):
        parts[p].grad = torch.empty_like(parts[p])
        dist.reduce_scatter_single(parts[p].grad, p.grad.view(-1), dist.ReduceOp.AVG)
        if number == 2:
            p.grad = None
    class Gathering(torch.optim.Adam):
        def step(self):
            super().step()
            for p, part in parts.items():
                mine = part.detach().clone()  # a call must not fill the memory that it sends
                dist.all_gather_single(p.detach().view(-1), mine)
                p.grad = None
    if number == 2:
        for p in parts:
            p.register_post_accumulate_grad_hook(reduce)
    finish = (lambda: [reduce(p) for p in parts]) if number == 1 else (lambda: None)
    return model, Gathering(parts.values(), foreach=False), finish

# %% id="13-c7e552"
def in_layers(model, **options):
    for part in [*model, model]:  # each layer is gathered by itself, then what is left
        fully_shard(part, **options)
    return model

def sharded(wrap=in_layers, **options):
    model = wrap(tower(), **options)
    return model, adam(model.parameters()), lambda: None

one, two = (simulate(train, partial(stage, number), world_size=n) for number in (1, 2))
three = simulate(train, sharded, world_size=n)
stages = [hand, one, two, three]

counted, formula = [job.results[0][0][1] for job in stages], [4, 2 + 2 / n, 1 + 3 / n, 4 / n]
print("counted", [f"{c:.2f} P" for c in counted], "   formula", [f"{f:.2f} P" for f in formula])
assert all(abs(c - f) < 0.01 for c, f in zip(counted, formula, strict=True))
same = partial(torch.allclose, atol=1e-6)  # sums in another order
for job in (one, two, three):
    assert all(map(same, job.results[0][1], hand.results[0][1]))  # the same training
assert sent(one) == sent(two) == sent(hand)
assert sent(three) == 1.5 * sent(hand)  # parameters are gathered twice: forward and backward
draw.memory(*stages, titles=["nothing divided", "ZeRO 1: averages", "ZeRO 2: and gradients",
                             "ZeRO 3: and parameters (fully_shard)"], unit=("P", P),
            caption="The same three steps, on one scale. In the last panel a layer is whole only "
            "while it is used, or if it is the next.")

# %% [markdown] id="13-ca7c17"
# Stages 1 and 2 send what DDP sends, 2(n − 1)/n·P. Stage 3 sends 3(n − 1)/n·P: it frees the parameters after forward, and gathers them a second time in backward.
#
# ## Your turn: ShardedOptimizer
#
# **Required · 13.1 · difficulty ●●● · about 35 minutes**
#
# **Goal.** ZeRO 1 for every model, around any optimizer class that works element by element.
#
# * `ShardedOptimizer(params, make, **options)`: `params` is a list or a generator of parameter tensors, equal on all ranks. `make(parameters, **options)` makes the inner optimizer: SGD with momentum, Adam, AdamW.
# * `step()` leaves on every rank the parameters that one process would have, if its optimizer stepped with the mean of the ranks' gradients. A gradient that is None on some ranks counts as zero there. If it is None on all, the parameter tensor *and its state* stay as they are. (Adam counts steps for each tensor, so one flat parameter for all will not do.)
# * `zero_grad()` leaves None in each `.grad`.
#
# **Budget.** A rank's *piece* of a parameter tensor is one n-th of its numbers, copied. At rest a rank holds the parameters, its pieces, and the states of its pieces. In bytes that is P + (k + 1)·⌈numbers/n⌉·(bytes of a number), if the optimizer keeps k states for each number, and *numbers* counts those of all parameters. Counters may take 8 bytes more per parameter tensor, and 256 in all. A step may send what one reduce_scatter and one all_gather of all parameters need, each parameter tensor padded to a multiple of n. What ranks tell each other about missing gradients may take 16 bytes per parameter tensor and 64 per rank. *Core* asks for lengths that n does not divide; *sturdy* for one rank, many ranks, two dtypes, bfloat16, `channels_last`, and fewer elements than ranks.
#
# In a verdict, `shapes 2x3 4d` means a matrix of 2 × 3, and 4 numbers of float64; `c` marks `channels_last`.
#
# <details>
# <summary>Hint: the pieces</summary>
#
# Pad each parameter, flat, to a multiple of n. This rank's piece is a parameter of its own, which the inner optimizer steps. A slice is a *view*, and keeps what it was sliced from alive: `clone()` it.
#
# </details>
# <details>
# <summary>Hint: None on some ranks</summary>
#
# All ranks make the same calls. First they tell each other which gradients are there. Then a rank that lacks one contributes zeros.
#
# </details>

# %% exercise="ShardedOptimizer" role="answer" points=15 required=true difficulty=3
class ShardedOptimizer:
    """An optimizer whose states are divided: each rank keeps them for its piece of each parameter.

    Every rank makes one of the same parameters, and calls step and zero_grad in the same order.
    At rest a rank holds the parameters, its pieces, and the states of its pieces.
    """

    def __init__(self, params, make, **options):
        """Cut this rank's piece out of each parameter, and let make(pieces, **options) step it."""
        ### BEGIN SOLUTION
        self.params, self.n = list(params), dist.get_world_size()
        self.pieces = [nn.Parameter(self._rows(p.detach())[dist.get_rank()].clone())
                       for p in self.params]
        self.inner = make(self.pieces, **options)

    def _rows(self, tensor):
        missing = -tensor.numel() % self.n
        return nn.functional.pad(tensor.reshape(-1), (0, missing)).view(self.n, -1)
        ### END SOLUTION

    def step(self) -> None:
        """Average the gradients, step the pieces, and bring every rank the whole parameters.

        None counts as zero; where all ranks have None, a parameter and its state stay.
        """
        ### BEGIN SOLUTION
        there = torch.tensor([p.grad is not None for p in self.params], dtype=torch.int32)
        dist.all_reduce(there)
        for p, piece, count in zip(self.params, self.pieces, there.tolist(), strict=True):
            if count:
                rows = self._rows(torch.zeros_like(p) if p.grad is None else p.grad)
                piece.grad = torch.empty_like(piece)
                dist.reduce_scatter_single(piece.grad, rows.view(-1), dist.ReduceOp.AVG)
        self.inner.step()
        self.inner.zero_grad()
        for p, piece in zip(self.params, self.pieces, strict=True):
            whole = piece.new_empty(self.n * piece.numel())
            dist.all_gather_single(whole, piece.detach())
            p.detach().copy_(whole[: p.numel()].view_as(p))
        ### END SOLUTION

    def zero_grad(self) -> None:
        """Leave None in the gradient of each parameter."""
        ### BEGIN SOLUTION
        for p in self.params:
            p.grad = None
        ### END SOLUTION

# %% exercise="ShardedOptimizer" role="try"
def with_mine():
    model = tower()
    optimizer = ShardedOptimizer(model.parameters(), torch.optim.Adam, foreach=False)
    return model, optimizer, lambda: None

(*_, rest), parameters, _ = simulate(train, with_mine, world_size=n).results[0]
print(f"at rest {rest:.2f} P of {1 + 3 / n:.2f} P:", all(map(same, parameters, hand.results[0][1])))

# %% exercise="ShardedOptimizer" role="check"
check(ShardedOptimizer)

# %% [markdown] id="13-714783"
# ## Born on meta
#
# If you make the whole model before you shard it, you hold all of it for a moment. Tensors on the device `meta` have shapes and dtypes, but no memory. Make the model there, shard it, give each rank memory for its part (`to_empty`), and then fill in the numbers.
#
# **Mind what fills the memory.** After `to_empty` parameters and buffers hold arbitrary numbers. Below, each rank draws those of its own part, `p.to_local()`. So ranks need different generators; `run` sees to that.

# %% id="13-c85030"
def born(where):
    with count_memory() as memory:
        with torch.device(where):
            model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(depth)))
        in_layers(model)
        if where == "meta":
            model.to_empty(device="cpu")
            for p in model.parameters():
                p.to_local().detach().uniform_(-0.1, 0.1)
        return memory.peak / P

whole_first, on_meta = (run(born, where, world_size=n).results[0] for where in ("cpu", "meta"))
assert on_meta < 0.6 and whole_first > 1
draw.bars({"made whole, then sharded": whole_first, "made on meta": on_meta}, unit="P",
          caption="The most bytes that are alive while a model is made on one of four ranks. "
          "The rank's part of it is P/4.")

# %% [markdown] id="13-98a408"
# ## Activations: memory for time
#
# Activations grow with the batch, and no stage of ZeRO divides them, because each rank has its own samples. What helps is to forget them. `checkpoint(layer, x)` keeps only the layer's input, and computes the layer a second time in backward. (It has nothing to do with lesson 12's checkpoints.)
#
# *Full* checkpointing does so with every block. It costs one more forward pass, about a third of the time of a step. *Selective* checkpointing (`create_selective_checkpoint_contexts`) keeps matrix products, and computes again what is cheap.

# %% id="13-1d382d"
class Block(nn.Sequential):
    calls = 0
    def inside(self, x):
        self.calls += 1
        return super().forward(x)
    def forward(self, x):
        return checkpoint(self.inside, x, use_reentrant=False) if self.forgets else self.inside(x)

def with_a_large_batch(forgets):
    model = nn.Sequential(*(Block(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 32))
                            for _ in range(12)))
    Block.forgets = forgets
    x = torch.ones(256, 32)
    with count_memory(model, x) as memory:
        with span("forward"):
            loss = model(x).sum()
        with span("backward"):
            loss.backward()
    return memory.peak, sum(block.calls for block in model)

keeps, forgets = (run(with_a_large_batch, way, world_size=2) for way in (False, True))
(most, calls), (less, more) = keeps.results[0], forgets.results[0]
assert less < 0.5 * most and (calls, more) == (12, 24)
draw.memory(keeps, forgets, titles=["all activations kept", "inputs kept"], caption="If "
            "only inputs are kept, each block is computed twice, with one at a time in memory.")

# %% [markdown] id="13-052b3c"
# ## Gather, use, free
#
# Stage 3 for one layer: a rank has a flat piece of W, its **shard**. In forward: gather W, multiply, free W. In backward: gather W again for the gradient of x; compute W's whole gradient; reduce and scatter that gradient; free both.
#
# A plain `all_gather` gives a W without history, and no gradient reaches the shard (lesson 10). And what autograd *saves* stays alive until backward: `x @ W.t()` saves W, and nothing is gained.
#
# ## Your turn: gathered_linear
#
# **Optional · 13.2 · difficulty ●●● · about 30 minutes**
#
# **Goal.** Compute y = x·Wᵀ from shards of W. x has any number of leading dimensions, and may need no gradient. W has this `shape` (outputs, inputs). It lies flat, row by row, padded with zeros to a multiple of n, and rank r has the r-th of n equal pieces. Backward returns two gradients: that of x, from this rank's own samples, and that of the shard, its piece of the *mean* over the ranks, with zeros for padding. (Autograd adds it to `.grad`; do not write there.)
#
# **Budget.** Forward: one all_gather. Backward: at most one all_gather, and one reduce_scatter. Between forward and backward at most 1 KiB is alive beside x, shard and y. *Sturdy* asks for one rank, many ranks, float64, and an x without rows, on all ranks or on one.
#
# <details>
# <summary>Hint: three ways</summary>
#
# An `autograd.Function` whose backward gathers again; a Function for the gather alone, inside `checkpoint`; or `saved_tensors_hooks`, which keep something else in place of W.
#
# </details>

# %% exercise="gathered_linear" role="answer" points=8 required=false difficulty=3
def gathered_linear(x: Tensor, shard: Tensor, shape: tuple[int, int]) -> Tensor:
    """x·Wᵀ, where each rank has an equal flat piece of W; every rank calls it, both ways.

    Args:
        x: (..., inputs), this rank's samples.
        shard: this rank's piece of W, flat; n pieces hold W and, at the end, padding.
        shape: (outputs, inputs) of W.

    Returns y of shape (..., outputs), in a graph whose backward gives x its own gradient, and the
    shard the mean of the ranks' gradients of this piece of W.
    """
    ### BEGIN SOLUTION
    rows, columns = shape

    def gather(piece):
        flat = piece.new_empty(piece.numel() * dist.get_world_size())
        dist.all_gather_single(flat, piece.detach())
        return flat[: rows * columns].view(rows, columns)

    class Gathered(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, piece):
            ctx.save_for_backward(x, piece)
            return x @ gather(piece).t()

        @staticmethod
        def backward(ctx, gradient):
            x, piece = ctx.saved_tensors
            of_x = gradient @ gather(piece) if ctx.needs_input_grad[0] else None
            of_w = gradient.reshape(-1, rows).t() @ x.reshape(-1, columns)
            flat = piece.new_zeros(piece.numel() * dist.get_world_size())
            flat[: rows * columns] = of_w.reshape(-1)
            mine = torch.empty_like(piece)
            dist.reduce_scatter_single(mine, flat, dist.ReduceOp.AVG)
            return of_x, mine

    return Gathered.apply(x, shard)
    ### END SOLUTION

# %% exercise="gathered_linear" role="try"
def both_ways():
    x, shard = torch.ones(1, 2), torch.tensor([1.0 + dist.get_rank(), 3.0]).requires_grad_()
    y = gathered_linear(x, shard, (2, 2))  # W is [[1, 3], [2, 3]]
    y.sum().backward()
    return y.detach(), shard.grad

run(both_ways, world_size=2).results[0]  # y is [[4, 5]], and each gradient 1

# %% exercise="gathered_linear" role="check"
check(gathered_linear)

# %% [markdown] id="13-1d33d6"
# ## Prefetch
#
# The next layer is gathered *while* this one computes, and two layers are whole at a time. With c_i seconds of computing and g_i of gathering, layer i is whole at G_i and done at C_i:
#
# G_i = max(G_{i−1}, C_{i−2}) + g_i,   C_i = max(C_{i−1}, G_i) + c_i  (in seconds).
#
# Gather i waits for gather i − 1, because the network is busy. It also waits for layer i − 2, which is in memory until it is done. Without this all layers would be whole at once.
#
# On a GPU an asynchronous collective waits for what the compute stream has been given *before* the call. So if you issue a gather after the `compute` of layer i, it begins when layer i is done.
#
# `fully_shard` gathers one layer ahead in backward, and two in forward, where three layers are whole.
#
# The cell compares it with DDP, on two modelled GPUs whose layers compute 0.3 ms forward and 0.6 ms backward. Each of DDP's buckets has one layer. We time the third step: in DDP's first step one bucket has all layers, as in lesson 10. Guess first: which of the two is faster on a slow network?

# %% id="13-843fc6"
def busy_tower(wrap, steps=3):
    def computing(layer, given, out):
        compute(0.3e-3)
        out.register_hook(lambda gradient: compute(0.6e-3) and None)
    layers = tower()[:6]
    model = wrap(layers)
    for one in layers:  # after fully_shard, whose own hooks gather first
        one.register_forward_hook(computing)
    for _ in range(steps):
        dist.barrier()
        model(torch.ones(1, width)).sum().backward()

def gpus(step, *options, bandwidth=2e8):  # bytes/s: a gather takes half of a layer's forward
    return simulate(step, *options, world_size=2, network=Network(bandwidth=bandwidth),
                    backend="nccl")

in_buckets, took = partial(DistributedDataParallel, bucket_cap_mb=layer / 2**20), []
for bandwidth, wrap in ((2e8, in_layers), (2e8, in_buckets), (2e7, in_layers), (2e7, in_buckets)):
    job = gpus(busy_tower, wrap, bandwidth=bandwidth)
    *_, third = (call.completed for call in job.trace.of(0) if call.op == "barrier")
    took.append(round(1e3 * (job.seconds - third), 2))
print("fully_shard, DDP: at 200 MB/s {} and {} ms, at 20 MB/s {} and {} ms".format(*took))
assert took == [5.74, 5.73, 29.58, 22.09]
draw.timeline(gpus(busy_tower, in_layers, 1), caption="One step of fully_shard. In backward "
              "a layer's reduce_scatter and the gather of the next one come as a pair.")

# %% [markdown] id="13-2f2f7e"
# At 200 MB/s all gathers and reductions are hidden, except for the first gather and the last reduce_scatter or, for DDP, the last all_reduce, which sends as much as both. At 20 MB/s the network is always busy, and `fully_shard` sends 1.5 times as much as DDP.
#
# ## Your turn: prefetched
#
# **Optional · 13.3 · difficulty ●●○ · about 25 minutes**
#
# **Goal.** Write a forward pass over sharded layers. For each `(seconds, shard)`, in order: gather the layer, call `compute(seconds)` while it is whole, take its sum, free it. Return the sums. Shards of a layer are equally long on all ranks; layers differ. Call no `.item()`: the host must not stand still.
#
# **Budget.** One all_gather per layer, in order. The time of the formula above, and some 5 µs per call. The gather of layer i + 2 begins only when layer i has been used. *Sturdy* asks for one rank, eight ranks, no layers.
#
# <details>
# <summary>Hint: when to issue</summary>
#
# Issue two gathers before the loop. Then, for each layer: wait, compute, sum, let go of everything that refers to the layer (its Work as well), and issue the gather of the layer after the next.
#
# </details>

# %% exercise="prefetched" role="answer" points=6 required=false difficulty=2
def prefetched(layers: list[tuple[float, Tensor]]) -> list[Tensor]:
    """The sum of each layer, a tensor without dimensions, the same on all ranks.

    layers: for each layer the seconds that it computes, and this rank's shard of it, flat.
    The next layer is gathered while one is computed; two are whole at a time.
    """
    ### BEGIN SOLUTION
    sums, on_the_way = [], []

    def gather(number):
        if number < len(layers):
            shard = layers[number][1]
            whole = shard.new_empty(dist.get_world_size() * shard.numel())
            work = dist.all_gather_single(whole, shard, async_op=True)
            on_the_way.append((whole, work))

    gather(0)
    gather(1)
    for number, (seconds, _) in enumerate(layers):
        whole, work = on_the_way.pop(0)
        work.wait()
        compute(seconds)
        sums.append(whole.sum())
        del whole, work
        gather(number + 2)
    return sums
    ### END SOLUTION

# %% exercise="prefetched" role="try"
def five_layers():
    prefetched([(0.5e-3, torch.ones(size)) for size in (20_000, 30_000, 20_000, 10_000, 30_000)])

draw.timeline(gpus(five_layers), caption="A rank computes with one layer and gathers the next "
              "at the same time.")

# %% exercise="prefetched" role="check"
check(prefetched)

# %% [markdown] id="13-0fc50f"
# ## fully_shard, counted
#
# The next cells train in ten ways. (Guess first: which has the lowest peak?) First the options:
#
# * **`gradient_as_bucket_view=True`** makes DDP's gradients views of its buckets: it saves P at the peak.
# * **`ZeroRedundancyOptimizer`** is an older stage 1, for DDP. All ranks get the whole mean, and then each owner broadcasts its part: 1.5 times what your `ShardedOptimizer` sends.
# * **`reshard_after_forward=False`** keeps a layer whole from forward to backward. That saves the second gather, and is ZeRO 2.
# * **Mixed precision**: `MixedPrecisionPolicy(param_dtype=torch.bfloat16)` gathers 2 bytes per parameter. (Since torch 2.15 gradients are *reduced* in float32 even then; `reduce_dtype=torch.bfloat16` saves half of that, and loses digits.)
#
# Three mistakes raise no error:
#
# * **The optimizer is made first.** `fully_shard` puts DTensors in place of the parameters. The optimizer keeps the old ones, which never get a gradient: no parameter moves.
# * **Only the root is wrapped.** Then there is one gather, of the whole model.
# * **Only the layers are wrapped.** Then each is a root, and a root stays whole after forward, because backward would gather it at once.

# %% id="13-2873f0"
from collections import Counter
from torch.distributed.optim import ZeroRedundancyOptimizer
def older():
    model, *_ = ddp()
    return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam,
                                          foreach=False), lambda: None

def mixed(**options):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, **options)
    return sharded(mp_policy=policy)

def made_first():
    model = tower()
    optimizer = adam(model.parameters())
    return in_layers(model), optimizer, lambda: None

ways = {"DDP, buckets as gradients": partial(ddp, gradient_as_bucket_view=True),
        "DDP + ZeroRedundancyOptimizer": older,
        "kept whole after forward": partial(sharded, reshard_after_forward=False),
        "bfloat16": mixed, "bfloat16, reduced so": partial(mixed, reduce_dtype=torch.bfloat16),
        "optimizer made first": made_first, "root alone": partial(sharded, fully_shard),
        "layers alone": partial(sharded, lambda model: nn.Sequential(*map(fully_shard, model)))}
jobs = {"DDP": wrapped, "fully_shard": three}
jobs |= {name: simulate(train, way, world_size=n) for name, way in ways.items()}

# %% id="13-a3fd47"
print(f"{'in units of P':<30} between   peak  at rest   sent   layers that moved")
for name, job in jobs.items():
    (between, _, peak, rest), weights, _ = job.results[0]
    moved = sum(map(torch.ne, map(torch.sum, weights), map(torch.sum, tower().parameters())))
    print(f"{name:<30} {between:7.2f} {peak:6.2f} {rest:8.2f} {sent(job):6.3f} {moved:4}")
    assert moved == (0 if name == "optimizer made first" else depth)
print("\nalive at the peak of fully_shard, in layers:")
held = Counter((one.shape, one.nbytes / layer) for one in three.results[0][2])
for (shape, size), count in held.most_common():
    if size > 0.1:
        print(f"{count:3} × {size:.2f}  {list(shape)}")
assert round(sum(size * count for (_, size), count in held.items()), 1) == depth + 3.5

# %% [markdown] id="13-6e81d2"
# **Stage 3's peak, tensor by tensor.** It comes in backward, when six layers' gradients are there. Parts of parameters and averages take as much as 3·8/4 = 6 layers, and parts of gradients 6/4 = 1.5. Four tensors have the size of a layer: the weight in use; the next one, gathered ahead; the gradient just made; and the flat copy of the gradient before it, which is being scattered. That makes P and 3.5 layers, however deep the model is.
#
# ## Break it
#
# These mistakes end in an error:
#
# * **Rank 0 computes a loss by itself.** Under `fully_shard` a forward pass is a collective.
# * **The root is wrapped before its layers.** It takes all parameters, and none are left for them. Always go bottom-up.
# * **`model.forward(x)`** skips the hooks that gather.
# * **Tied weights** are in two groups. `fully_shard([embedding, head])` makes one group.
#
# The cell begins with a mistake that raises no error: with `full_state_dict=True` **every** rank gets the whole model. With `cpu_offload=True` as well, only rank 0 does.

# %% id="13-0a9c57"
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
def saved(offloads):
    options = StateDictOptions(full_state_dict=True, cpu_offload=offloads)
    return len(get_model_state_dict(in_layers(tower()), options=options))

each_rank = [simulate(saved, offloads, world_size=2).results for offloads in (False, True)]
print("tensors in each rank's full state, without and with cpu_offload:", *each_rank)
assert each_rank == [[8, 8], [8, 0]]

def rank_0_looks():
    model = in_layers(tower())
    if dist.get_rank() == 0:
        model(torch.ones(1, width))
def root_first():
    in_layers(fully_shard(tower()))
def by_forward():
    fully_shard(tower()).forward(torch.ones(1, width))
def tied():
    model = tower()
    model[7].weight = model[0].weight
    in_layers(model)(torch.ones(1, width))
for wrong in (rank_0_looks, root_first, by_forward, tied):
    with expect(Deadlock if wrong is rank_0_looks else RankFailed):
        simulate(wrong, world_size=2)

# %% [markdown] id="13-4e1b7c"
# ## Your turn: clip_global_norm
#
# **Optional · 13.4 · difficulty ●●○ · about 15 minutes**
#
# **Goal.** Clip a gradient that no rank has whole, as `torch.nn.utils.clip_grad_norm_` does on one process. `params` is a list or a generator. A parameter with `p.sharded` True is this rank's piece of a larger one. The others are on all ranks, with equal gradients. A `.grad` may be None, on all ranks or on one. Return the norm of the whole gradient, a tensor without dimensions in the parameters' dtype, which is the same for all. Where it exceeds `max_norm`, scale each `.grad`, in place, by `max_norm / norm`. (torch adds 1e-6 to the norm; with or without is right.)
#
# **Budget.** One all_reduce of one number. *Sturdy* asks for one rank, many ranks, gradients that are all zero or None, float64, and float16, whose numbers end below 2¹⁶.
#
# <details>
# <summary>Hint: what can be added</summary>
#
# Norms cannot: a gradient of 3 here and 4 there has the norm 5. What can?
#
# </details>

# %% exercise="clip_global_norm" role="answer" points=6 required=false difficulty=2
def clip_global_norm(params, max_norm: float) -> Tensor:
    """Scale the whole gradient to a norm of at most max_norm, and return what its norm was.

    params: a list or a generator. p.sharded is True for this rank's pieces.
    Every rank calls it, and gets the same norm, in the parameters' dtype.
    """
    ### BEGIN SOLUTION
    params = list(params)
    there = [p for p in params if p.grad is not None]
    squares = [p.grad.double().square().sum() for p in there if p.sharded or dist.get_rank() == 0]
    total = torch.stack([torch.zeros((), dtype=torch.float64), *squares]).sum()
    dist.all_reduce(total)
    norm = total.sqrt()
    for p in there:
        p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1))
    return norm.to(params[0].dtype)
    ### END SOLUTION

# %% exercise="clip_global_norm" role="try"
def by_pieces():
    piece, repeated = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    piece.sharded, repeated.sharded = True, False
    piece.grad, repeated.grad = torch.tensor([2.0 + dist.get_rank()]), torch.tensor([6.0])
    return clip_global_norm([piece, repeated], 3.5), piece.grad, repeated.grad

run(by_pieces, world_size=2).results  # 2² + 3² + 6² = 7²: all is halved

# %% exercise="clip_global_norm" role="check"
check(clip_global_norm)

# %% [markdown] id="13-f0b9ff"
# ## The largest model that fits
#
# How many parameters fit into 80 GB on each of 64 GPUs, if a quarter is left for activations? If nothing is divided, 60 GB / 16 B: fewer than four billion. In stage 3 it is 64 times as many, 240 billion, less what some four whole layers take.
#
# ## Your turn: bytes_per_rank
#
# **Optional · 13.5 · difficulty ●○○ · about 10 minutes**
#
# **Goal.** The table of the stages as a function: the bytes that a rank keeps of `params` parameters, with Adam in mixed precision. A weight and a gradient have 2 bytes each; the states of a parameter have 12, the master weight included. If a kind is divided, the rank that has most keeps it for ⌈params/n⌉ parameters. *Sturdy* asks for one rank, and for fewer parameters than ranks.
#
# <details>
# <summary>Hint: rounding</summary>
#
# Divide parameters, and not bytes. For whole numbers −(−a // b) is ⌈a/b⌉.
#
# </details>

# %% exercise="bytes_per_rank" role="answer" points=4 required=false difficulty=1
def bytes_per_rank(params: int, n: int, stage: int) -> dict[str, int]:
    """Bytes of "weights", "gradients" and "states" on the rank that has most, of n, in a stage.

    stage: 0 divides nothing, 1 the states, 2 also gradients, 3 also weights.
    """
    ### BEGIN SOLUTION
    share = -(-params // n)
    return {
        "weights": 2 * (share if stage >= 3 else params),
        "gradients": 2 * (share if stage >= 2 else params),
        "states": 12 * (share if stage >= 1 else params),
    }
    ### END SOLUTION

# %% exercise="bytes_per_rank" role="try"
for stage in range(4):
    kept = bytes_per_rank(7_000_000_000, 64, stage)
    fits = 60e9 / sum(kept.values()) * 7  # billion parameters
    print("stage", stage, {kind: f"{nbytes / 1e9:.1f} GB" for kind, nbytes in kept.items()},
          f"   into 60 GB go {fits:.1f} billion")

# %% exercise="bytes_per_rank" role="check"
check(bytes_per_rank)

# %% [markdown] id="13-68418b"
# ## On GPUs
#
# `run(train, sharded, backend="nccl")` does the same, if `x` and the model are on `device()`. There the allocator adds to what is counted: it rounds blocks up to 512 bytes, and cuBLAS keeps a workspace. Only `nvidia-smi` shows NCCL's buffers. `torch.cuda.memory._record_memory_history()` draws the same staircase with the stack of each tensor.
#
# ## Roads not taken
#
# * **Accumulation.** With `model.set_requires_gradient_sync(False)` micro-batches send no gradients, and keep them whole: P in place of P/n.
# * **HSDP.** With a mesh of two dimensions `fully_shard` divides within a node, and repeats from node to node: reduce_scatter inside, all_reduce across.
# * **FSDP1**, `FullyShardedDataParallel`, flattens what it wraps into one parameter. `fully_shard`, its successor, cuts each parameter along its first dimension.
#
# ## What you can do now
#
# * ☑ count what a step keeps alive, and say which tensor it is;
# * ☑ cut an all-reduce in two, and put an update in between;
# * ☑ say what each stage of ZeRO divides, keeps and sends;
# * ☑ make a model on `meta`, and trade activations for time;
# * ☑ gather, use and free a layer, forward and backward;
# * ☑ prefetch with two layers whole, and no more;
# * ☑ choose options of `fully_shard` by numbers, and see when it is used wrongly;
# * ☑ clip a gradient that no rank has whole.
#
# **Next:** [lesson 14](14_tensor_parallel.ipynb) divides the computing, too.
#
# ## Sources
#
# * S. Rajbhandari and others, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, SC 2020, [arXiv:1910.02054](https://arxiv.org/abs/1910.02054)
# * Y. Zhao and others, *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*, VLDB 2023, [arXiv:2304.11277](https://arxiv.org/abs/2304.11277)
# * T. Chen and others, *Training Deep Nets with Sublinear Memory Cost*, 2016, [arXiv:1604.06174](https://arxiv.org/abs/1604.06174)
# * PyTorch 2.15: [fully_shard](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) · [ZeroRedundancyOptimizer](https://docs.pytorch.org/docs/stable/distributed.optim.html) · [torch.utils.checkpoint](https://docs.pytorch.org/docs/stable/checkpoint.html) · [Meta device](https://docs.pytorch.org/docs/stable/meta.html) · [Distributed Checkpoint](https://docs.pytorch.org/docs/stable/distributed.checkpoint.html)
# * Mistakes of others: [ColossalAI#5819](https://github.com/hpcaitech/ColossalAI/issues/5819) (a matrix cut before it was flattened), [pytorch#54736](https://github.com/pytorch/pytorch/issues/54736) (the order of shards)
