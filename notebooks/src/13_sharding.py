# %% [markdown] id="13-a6a109"
# # Hold a model that no rank could hold
#
# **Count what training keeps in memory, divide it among the ranks in three steps, and gather each layer just in time; then `fully_shard`.**
#
# ![Bytes alive on one of four ranks during three training steps, four panels on one scale: with everything repeated the steps climb to more than four times the parameters; with states, gradients and at last parameters divided each panel is lower, and the last one stays below two](../../figures/13_sharding.png)
#
# *Where this goes: three training steps of the same model on four ranks, operator by operator. From the top, nothing is divided, then Adam's averages, then gradients too, then everything.*
#
# | | |
# |---|---|
# | **Do** | count the bytes that a step keeps alive; cut an all-reduce in two; build the three stages of ZeRO and compare each with its formula; gather a weight, use it, free it; prefetch; then train with `fully_shard` |
# | **Learn** | what a parameter costs; why dividing it costs no message more, until the last stage; what `meta`, checkpointing and `reshard_after_forward` buy; how to find out what holds your memory |
# | **Need** | lessons [06](06_ddp.ipynb) (DDP), [07](07_gpus.ipynb) (streams) and [10](10_mini_ddp.ipynb) (a gradient through a collective) |
# | **Time** | about 75 minutes with the required exercise, 155 with the optional ones as well |
#
# ## Where memory goes
#
# Take one parameter, a float32 of 4 bytes. Its gradient takes 4 bytes more. Adam keeps two averages, 8 bytes. That makes **16 bytes**, four times the parameter itself. We write P for the bytes of all parameters: training with Adam holds P + P + 2P = 4P, of which the gradients, P, can be freed between steps. In *mixed precision* it is 2 bytes for the weight, 2 for its gradient, and 12 for what Adam keeps: two averages and a copy of the weight, all in float32. That is 16 bytes again. A model of 7 billion parameters needs 112 GB before it has seen one sample.
#
# `count_memory` counts exactly that in a rank: the bytes of all tensors that are alive, each storage once. (What was there before is named.) `memory.now` is what is alive at this moment, `memory.peak` the most so far, and `memory.at_rest()` what remains when everybody has let go. It counts tensors. The allocator's reserve and an operator's scratch memory come on top of it.
#
# All ranks have a tower of eight square layers, and average its gradients by hand, as in lesson 05, or with DDP.
#
# **Predict.** By hand, 3P stay alive between two steps: the parameters and Adam's averages. How many P does DDP keep?

# %% id="13-b6b16d"
import torch
import torch.distributed as dist
from torch import Tensor, nn
from course_lib import (Deadlock, Network, check, compute, count_memory, draw, expect, run,
                        simulate, span)

guess = None

# %% id="13-5db4f4"
from functools import partial
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

n, width, depth = 4, 128, 8  # ranks, units of a layer, layers
P = 4 * depth * width * width  # bytes of all parameters

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

def ddp():
    model = DistributedDataParallel(tower())
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
    return counted, [whole(p) for p in model.parameters()]

def whole(p):  # of what fully_shard has divided, all of it
    return (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone()

# %% id="13-d7b024"
hand, wrapped = (simulate(train, make, world_size=n) for make in (by_hand, ddp))
rests = [round(job.results[0][0][3], 2) for job in (hand, wrapped)]
print("your guess:", guess, "  at rest, in P, by hand and with DDP:", *rests)
assert rests == [3.0, 4.0]
draw.memory(hand, wrapped, titles=["gradients averaged by hand", "DDP"], caption="Three steps of "
            "training on one of four ranks. DDP's buckets lie beside the gradients.")

# %% [markdown] id="13-8cafdc"
# DDP keeps its buckets, which are as large as all gradients together: 4P. (`gradient_as_bucket_view=True` lets each `.grad` be a part of a bucket, and saves that P during the step. Lesson 10.)
#
# ## A staircase
#
# The picture has a step for each operator that made or freed a tensor. In *forward* a layer's output is added, and kept for backward. Of one sample these are small. In *backward* each layer adds its gradient, P in all. In *step* Adam makes scratch tensors, one parameter at a time, and then the gradients are freed.
#
# Where is the peak? Just before the gradients go: P + P + 2P, and Adam's scratch tensors, which have the size of one layer each.
#
# ## An all_reduce, cut in two
#
# All four ranks keep the same averages and make the same update. Why not divide that? Rank r could own a quarter of each parameter, keep Adam's averages for that quarter alone, and update it. It needs the mean gradient of *its* quarter: that is a `reduce_scatter`. And afterwards everybody needs everybody's quarter: an `all_gather`.
#
# Lesson 04 has shown that a ring `all_reduce` *is* these two, one after the other. Each sends (n − 1)/n of the bytes, so together they send 2(n − 1)/n, as the `all_reduce` does. The update just moves in between. **Dividing Adam's averages costs no byte more.**

# %% id="13-4c34f8"
def whole_or_in_halves():
    gradient = torch.arange(8.0) * (1 + dist.get_rank())
    mine = torch.empty(8 // n)
    dist.reduce_scatter_single(mine, gradient, dist.ReduceOp.AVG)
    halves = torch.empty(8)
    dist.all_gather_single(halves, mine)  # between the two an owner would update its part
    dist.all_reduce(gradient, dist.ReduceOp.AVG)
    return gradient, halves

def sent(job, rank=0):
    """Bytes that a rank sends between its last two barriers, in P, on average over the ranks."""
    calls = job.trace.of(rank)
    ends = [k for k, call in enumerate(calls) if call.op == "barrier"][-2:]
    times = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "broadcast": 1}
    return sum(times[name] * call.nbytes * (n - 1) / n for call in calls[slice(*ends)]
               for name in times if call.op.startswith(name)) / P

both = run(whole_or_in_halves, world_size=n)
assert all(torch.equal(whole, halves) for whole, halves in both.results)
assert sent(hand) == sent(wrapped) == 2 * (n - 1) / n
print(f"by hand and with DDP each rank sends {sent(hand):.2f} P a step")

# %% [markdown] id="13-ba5af2"
# ## Three stages
#
# *ZeRO* (Rajbhandari and others, 2020) names what is divided. In each row, what is divided counts 1/n.
#
# | stage | divided | alive when backward is over, with Adam in float32 |
# |---|---|---|
# | 0 | nothing: DDP | P + P + 2P |
# | 1 | Adam's averages | P + P + 2P/n |
# | 2 | and gradients | P + (P + 2P)/n |
# | 3 | and parameters | (P + P + 2P)/n |
#
# Stage 1 needs two loops: after backward one that reduces and scatters, after the update one that gathers. Each layer here divides by n, so a rank's part of a layer is a view of it: a slice of the layer's flat memory. Stage 2 does the first loop's work in a hook, as soon as a gradient is there, and frees the gradient at once. Stage 3 keeps parts of the parameters, too, and gathers a layer when it is used. `fully_shard` does that; we will build it from the inside.

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
                dist.all_gather_single(p.detach().view(-1), part.detach().clone())
                p.grad = None
    if number == 2:
        for p in parts:
            p.register_post_accumulate_grad_hook(reduce)
    finish = (lambda: [reduce(p) for p in parts]) if number == 1 else (lambda: None)
    return model, Gathering(parts.values(), foreach=False), finish

# %% id="13-c7e552"
def sharded(**options):
    model = tower()
    for part in [*model, model]:  # each layer is gathered by itself, then what is left
        fully_shard(part, **options)
    return model, adam(model.parameters()), lambda: None

one, two = (simulate(train, partial(stage, number), world_size=n) for number in (1, 2))
three = simulate(train, sharded, world_size=n)
stages = [hand, one, two, three]

counted = [job.results[0][0][1] for job in stages]
formula = [4, 2 + 2 / n, 1 + 3 / n, 4 / n]
print("counted", [f"{c:.2f} P" for c in counted], "   formula", [f"{f:.2f} P" for f in formula])
assert all(abs(c - f) < 0.01 for c, f in zip(counted, formula, strict=True))
for job in (one, two, three):
    same = partial(torch.allclose, atol=1e-6)  # sums in another order
    assert all(map(same, job.results[0][1], hand.results[0][1]))  # the same training
assert sent(one) == sent(two) == sent(hand)
assert sent(three) == 1.5 * sent(hand)  # parameters are gathered twice: forward and backward
draw.memory(*stages, titles=["nothing divided", "ZeRO 1: averages", "ZeRO 2: and gradients",
                             "ZeRO 3: and parameters (fully_shard)"],
            caption="The same three steps, on one scale. In the last panel a layer is whole only "
            "while it computes.")

# %% [markdown] id="13-ca7c17"
# Stages 1 and 2 send what DDP sends. Stage 3 sends half as much again, because it gathers the parameters twice: once in forward, and again in backward, as they were freed in between. That is 3(n − 1)/n·P in place of 2(n − 1)/n·P.
#
# ## Your turn: ShardedOptimizer
#
# **Required · 13.1 · difficulty ●●● · about 35 minutes**
#
# **Goal.** ZeRO 1 for every model and every optimizer that works element by element. The class wraps an optimizer class of PyTorch's.
#
# * `ShardedOptimizer(params, make, **options)`: `params` is a list or a generator of parameters, equal on all ranks. `make(parameters, **options)` makes the inner optimizer: SGD with momentum, Adam, AdamW.
# * `step()` leaves on every rank what `make`'s own optimizer would leave with the mean of the ranks' gradients. A gradient that is None on some ranks counts as zero there. Is it None on all, the parameter *and its state* stay as they are. (Adam counts steps for each parameter, so one flat parameter for all does not do.)
# * `zero_grad()` leaves None in each `.grad`.
#
# **Budget.** At rest: the parameters, and n-th parts of states and of one more copy. In bytes, with k states: P + (k + 1)·⌈numbers/n⌉·(bytes of a number), with the numbers of all parameters, and 8 bytes a parameter and 256 for counters. A step may send what one reduce_scatter and one all_gather of everything need, with each parameter padded to a multiple of n; and 16 bytes a parameter for what ranks have to tell each other. *Core* asks for lengths that n does not divide; *sturdy* for one rank, many ranks, two dtypes, and parameters with fewer elements than ranks.
#
# In a verdict, `shapes 2x3 4d` means a matrix of 2 × 3, and 4 numbers of float64.
#
# <details>
# <summary>Hint: the pieces</summary>
#
# Pad each parameter, flat, to a multiple of n. This rank's piece of it is a parameter of its own, which the inner optimizer steps. A slice is a *view*, and keeps all that it was sliced from alive: `clone()` it.
#
# </details>
# <details>
# <summary>Hint: None on some ranks</summary>
#
# All ranks have to make the same calls. First they tell each other which gradients are there: one small all_reduce. Then a rank that lacks one contributes zeros.
#
# </details>

# %% exercise="ShardedOptimizer" role="answer" points=15 required=true difficulty=3
class ShardedOptimizer:
    """An optimizer whose states are divided: each rank keeps them for its piece of each parameter.

    Every rank makes one of the same parameters, and calls step and zero_grad in the same order.
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
        """Average the gradients, step the pieces, and bring every rank the whole parameters."""
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

(*_, rest), parameters = simulate(train, with_mine, world_size=n).results[0]
print(f"at rest {rest:.2f} P of {1 + 3 / n:.2f} P:", all(map(same, parameters, hand.results[0][1])))

# %% exercise="ShardedOptimizer" role="check"
check(ShardedOptimizer)

# %% [markdown] id="13-714783"
# ## Born on meta
#
# Who makes a model and then shards it holds all of it for a moment. The device `meta` has shapes and dtypes and no memory. So: make the model there, shard it, give each rank memory for its part (`to_empty`), and only then fill it in.
#
# **Mind what fills it.** `to_empty` gives memory with anything in it, buffers included. Below each rank draws the numbers of its own part. So the ranks' generators have to differ, as `run` sees to; with one seed for all, every rank's part would hold the same numbers. From a checkpoint everything is loaded instead.

# %% id="13-c85030"
def born(where):
    with count_memory() as memory:
        with torch.device(where):
            model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(depth)))
        for part in [*model, model]:
            fully_shard(part)
        if where == "meta":
            model.to_empty(device="cpu")
            for p in model.parameters():
                p.to_local().detach().uniform_(-0.1, 0.1)
        return memory.peak / P

whole_first, on_meta = (run(born, where, world_size=n).results[0] for where in ("cpu", "meta"))
assert on_meta < 0.6 and whole_first > 1
draw.bars({"made whole, then sharded": whole_first, "made on meta": on_meta}, unit="P",
          caption="The most bytes that are alive while a model comes into being on one of four "
          "ranks. Its part is P/4.")

# %% [markdown] id="13-98a408"
# ## Activations: memory for time
#
# So far one sample went through the tower, and activations were small. They grow with the batch, and no stage of ZeRO divides them, because each rank has its own samples. What helps is to forget them: `checkpoint(layer, x)` keeps the layer's input alone, and computes the layer a second time in backward.
#
# *Full* checkpointing does so with every block, and costs one forward pass more, about a third of the time of a step. *Selective* checkpointing keeps what is dear to compute (matrix products) and computes again what is cheap (activation functions, norms): `create_selective_checkpoint_contexts` takes the list of operators to keep.

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
draw.memory(keeps, forgets, titles=["all activations kept", "inputs kept"], caption="With "
            "checkpointing each block is computed twice, one block's activations alive at a time.")

# %% [markdown] id="13-052b3c"
# ## Gather, use, free
#
# Stage 3 for one layer: a rank has a flat piece of W, its **shard**. Forward: gather W, multiply, free W. Backward: gather W again for the gradient of x; compute W's whole gradient; reduce and scatter it, and free both.
#
# Autograd does not know collectives, as lesson 10 has shown: a plain `all_gather` of shards gives a W without history, and no gradient reaches the shard. And what autograd *saves* stays alive until backward: `x @ W.t()` saves W, and then nothing is gained.
#
# ## Your turn: gathered_linear
#
# **Optional · 13.2 · difficulty ●●● · about 30 minutes**
#
# **Goal.** y = x·Wᵀ from shards of W. x has any number of leading dimensions. W of this `shape` (outputs, inputs) lies flat, row by row, padded with zeros to a multiple of n, and rank r has the r-th of n equal pieces. In backward x gets its own gradient. The shard gets the *mean* over the ranks, and zero for padding.
#
# **Budget.** Forward: one all_gather. Backward: at most one all_gather, and one reduce_scatter. Between the two at most 1 KiB is alive beside x, shard and y. *Sturdy* asks for one rank, many ranks, float64, more dimensions, no samples.
#
# <details>
# <summary>Hint: three ways</summary>
#
# An `autograd.Function` whose backward gathers again; a Function for the gather alone, inside `checkpoint`; or `torch.autograd.graph.saved_tensors_hooks`, which lets you keep something else in place of W.
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

# %% exercise="gathered_linear" role="check"
check(gathered_linear)

# %% [markdown] id="13-1d33d6"
# ## Prefetch
#
# The next layer is gathered *while* this one computes: at most two layers are whole at a time. With c_i seconds of computing and g_i of gathering, layer i is whole at G_i and done at C_i:
#
# G_i = max(G_{i−1}, C_{i−2}) + g_i,   C_i = max(C_{i−1}, G_i) + c_i  (in seconds).
#
# A gather waits for the one before it, because the network is busy, and for the layer before the last, because that is still in memory. Without the second condition all gathers run ahead, and all layers are whole at once: the speed of prefetch with the memory of DDP.
#
# On a GPU the order of calls decides. An asynchronous collective waits for what the compute stream has been given *before* the call. So a gather that is issued after `compute` of layer i begins when layer i is done.
#
# `fully_shard` gathers in a stream of its own, ahead of the computing. In forward a gather waits for the layer three before it, and three are whole. Here it is on two modelled GPUs, whose layers compute 0.3 ms forward and 0.6 ms backward.

# %% id="13-843fc6"
def busy_tower(wrap):
    def computing(layer, given, out):
        compute(0.3e-3)
        out.register_hook(lambda gradient: compute(0.6e-3) and None)

    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(6)))
    for layer in model:
        layer.register_forward_hook(computing)
    for part in [*model, model] if wrap is fully_shard else []:
        fully_shard(part)
    model = model if wrap is fully_shard else wrap(model, init_sync=False)
    model(torch.ones(1, width)).sum().backward()

def gpus(step, *options, bandwidth=2e8):  # bytes/s: a gather takes half of a layer's forward
    return simulate(step, *options, world_size=2, network=Network(bandwidth=bandwidth),
                    backend="nccl")

for bandwidth in (2e8, 2e7):
    ms = [1e3 * gpus(busy_tower, wrap, bandwidth=bandwidth).seconds
          for wrap in (fully_shard, DistributedDataParallel)]
    print(f"{bandwidth / 1e6:.0f} MB per second: fully_shard {ms[0]:.2f} ms, DDP {ms[1]:.2f} ms")
draw.timeline(gpus(busy_tower, fully_shard), caption="fully_shard: a gather for each layer in "
              "forward, again in backward, and there a reduce_scatter as well.")

# %% [markdown] id="13-2f2f7e"
# ## Your turn: prefetched
#
# **Optional · 13.3 · difficulty ●●○ · about 25 minutes**
#
# **Goal.** A forward pass over layers of which each rank has a shard. For each `(seconds, shard)`, in order: gather the layer, call `compute(seconds)` while it is whole, take its sum, free it. Shards of one layer are equally long on all ranks; layers differ. No `.item()`: the host must not stand still.
#
# **Budget.** Exactly one all_gather a layer, in order. The time of the formula above, and some 5 µs for each call. Layer i + 2 is not gathered before layer i has been used, and at most two layers are whole at a time. *Sturdy* asks for one rank, eight ranks, no layers.
#
# <details>
# <summary>Hint: when to issue</summary>
#
# Issue two gathers before the loop. Then, for each layer: wait, compute, sum, let go of everything that refers to the layer, and issue the gather of the layer after the next.
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

draw.timeline(gpus(five_layers), caption="Computing and gathering side by side, two layers at a "
              "time.")

# %% exercise="prefetched" role="check"
check(prefetched)

# %% [markdown] id="13-0fc50f"
# ## fully_shard, counted
#
# What the options of `fully_shard` buy, as numbers, with Adam on four ranks:
#
# * **`reshard_after_forward=False`** keeps a layer whole from forward to backward: between forward and backward 0.75 P becomes 1.75 P, and the second gather is saved. That is ZeRO 2, with gradients in parts.
# * **Mixed precision**: `MixedPrecisionPolicy(param_dtype=torch.bfloat16)` gathers 2 bytes a parameter. Since torch 2.15 `reduce_dtype=None` means that float32 parameters are *reduced* in float32 all the same. With `reduce_dtype=torch.bfloat16` half of that is saved, and digits are lost.
# * **Accumulation**: `model.set_requires_gradient_sync(False)` during all micro-batches but the last sends no gradients meanwhile, and keeps them whole: P in place of P/n. Bytes or memory.
# * **`ZeroRedundancyOptimizer`** is the older name for stage 1, used with DDP. DDP's `all_reduce` brings every rank the whole mean, 2(n − 1)/n·P. Then each owner broadcasts its P/n to n − 1 others, another (n − 1)/n·P: half as much again as an optimizer like yours.
#
# The table's peaks have a tilde: gloo's thread may hold a tensor some milliseconds longer. The rest is exact.
#
# **HSDP.** Across nodes gathering is slow. With a mesh of two dimensions `fully_shard` divides within a row, and repeats from row to row: reduce_scatter inside, all_reduce across, as lesson 09's hierarchy. The cell counts the calls of one layer.
#
# **Its checkpoint.** No rank has the model, so no rank can save it alone. `torch.distributed.checkpoint` lets each rank write its part, and loads it on another number of ranks. `get_model_state_dict` with `full_state_dict=True` gathers everything to rank 0.
#
# ## Break it
#
# With DDP each rank has the whole model, and `model.module` runs alone. Under `fully_shard` a forward pass is a collective. At the end of the table's cell rank 0 looks at its loss by itself, and waits for ever.

# %% id="13-2873f0"
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
def older():
    model = DistributedDataParallel(tower())
    return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam,
                                          foreach=False), lambda: None

def mixed(**options):
    return sharded(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, **options))

ways = {"by hand": by_hand, "DDP": ddp, "DDP + ZeroRedundancyOptimizer": older,
        "fully_shard": sharded, "kept whole": partial(sharded, reshard_after_forward=False),
        "bf16": mixed, "bf16, reduced so": partial(mixed, reduce_dtype=torch.bfloat16)}
def accumulating(syncs):
    model, _, _ = sharded()
    model.set_requires_gradient_sync(syncs)
    with count_memory(model) as memory:
        model(torch.ones(1, width)).sum().backward()
        return memory.at_rest() / P
one_each, last_only = (simulate(accumulating, syncs, world_size=n).results[0]
                       for syncs in (True, False))
assert abs(last_only - one_each - (1 - 1 / n)) < 0.01  # whole gradients, and not a part of each
jobs = {"by hand": hand, "DDP": wrapped, "fully_shard": three}
jobs = {name: jobs.get(name) or run(train, way, world_size=n) for name, way in ways.items()}
assert [sent(job) for job in jobs.values()] == [1.5, 1.5, 2.25, 2.25, 1.5, 1.5, 1.125]

# %% id="13-a3fd47"
print(f"{'in units of P':<30} between    peak  at rest   sent")
for name, job in jobs.items():
    between, _, peak, rest = job.results[0][0]
    print(f"{name:<30} {between:7.2f} {f'~{peak:.1f}':>7} {rest:8.2f} {sent(job):6.3f}")
rest = {name: round(job.results[0][0][3], 2) for name, job in jobs.items()}
assert [*rest.values()] == [3.0, 4.0, 2.5, 0.75, 0.75, 0.75, 0.75]
assert abs(jobs["kept whole"].results[0][0][0] - 1.75) < 0.05

def two_rows():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("across", "inside"))
    fully_shard(nn.Linear(8, 8), mesh=mesh)(torch.ones(1, 8)).sum().backward()
calls = [e.op for e in simulate(two_rows, world_size=4).trace.of(0) if e.nbytes]
assert calls == ["all_gather_single", "reduce_scatter_single", "all_reduce"]

def rank_0_looks():
    model = sharded()[0]
    if dist.get_rank() == 0:
        model(torch.ones(1, width))
print()
with expect(Deadlock):
    simulate(rank_0_looks, world_size=2)

# %% [markdown] id="13-4e1b7c"
# ## Your turn: clip_global_norm
#
# **Optional · 13.4 · difficulty ●●○ · about 15 minutes**
#
# **Goal.** Clip a gradient that no rank has whole, as `torch.nn.utils.clip_grad_norm_` does on one process. A parameter with `p.sharded` True is this rank's piece of a larger one. The others are on all ranks, with equal gradients. A `.grad` may be None, on all ranks or on one. Return the norm of the whole gradient, a tensor without dimensions in the gradients' dtype, the same on all ranks. Where it exceeds `max_norm`, scale each `.grad`, in place, by `max_norm / norm`. (torch adds 1e-6 to the norm; with or without is right.)
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

    params: where p.sharded is True, this rank's piece of a parameter, else one that all ranks
    have, with equal gradients. Every rank calls it.
    """
    ### BEGIN SOLUTION
    there = [p for p in params if p.grad is not None]
    squares = [p.grad.double().square().sum() for p in there if p.sharded or dist.get_rank() == 0]
    total = torch.stack([torch.zeros((), dtype=torch.float64), *squares]).sum()
    dist.all_reduce(total)
    norm = total.sqrt()
    for p in there:
        p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1))
    return norm.to(there[0].grad.dtype if there else torch.float32)
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
# How many parameters fit into 80 GB on each of 64 GPUs, with Adam in mixed precision, 16 bytes a parameter, when a quarter is left for activations? Without dividing, 60 GB / 16 B = 3.75 billion. In stage 1, 60 GB / (4 + 12/64) B. In stage 3, 60 GB · 64 / 16 B = 240 billion, but for one whole layer. The cell below the exercise puts these side by side, and asks: with 400 Gb/s a GPU, gathering 2 bytes a parameter twice and reducing 2 bytes once, how long does a step talk?
#
# ## Your turn: bytes_per_rank
#
# **Optional · 13.5 · difficulty ●○○ · about 10 minutes**
#
# **Goal.** The table of the three stages as a function: how many bytes a rank keeps of `params` parameters, with Adam in mixed precision. A weight and a gradient have 2 bytes each; the states have 12, master weights included. Of what is divided, a rank has at most ⌈params/n⌉ parameters. *Sturdy* asks for one rank, and for fewer parameters than ranks.
#
# <details>
# <summary>Hint: rounding</summary>
#
# Parameters are divided, and not bytes. For whole numbers −(−a // b) is ⌈a/b⌉.
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
    print("stage", stage, {kind: f"{nbytes / 1e9:.1f} GB" for kind, nbytes in kept.items()})

# %% exercise="bytes_per_rank" role="check"
check(bytes_per_rank)

# %% id="13-e94df0"
gpus_in_job, room = 64, 60e9  # ranks; bytes on each
per_parameter = {"DDP": 16, "ZeRO 1": 4 + 12 / gpus_in_job, "ZeRO 2": 2 + 14 / gpus_in_job,
                 "ZeRO 3": 16 / gpus_in_job}
largest = {name: room / each for name, each in per_parameter.items()}
print({name: f"{count / 1e9:.2f} billion" for name, count in largest.items()})
talk = 3 * 2 * largest["ZeRO 3"] * (gpus_in_job - 1) / gpus_in_job / 50e9
print(f"ZeRO 3 talks {talk:.0f} s a step: worth it where a step computes as long")
assert round(largest["DDP"] / 1e9, 2) == 3.75 and round(largest["ZeRO 3"] / 1e9) == 240

def beside_the_allocator():
    from course_lib import device
    torch.cuda.reset_peak_memory_stats()
    model = nn.Linear(1024, 1024, device=device())
    with count_memory(model) as memory:
        model(torch.ones(64, 1024, device=device())).sum().backward()
    return f"{memory.peak:,} bytes counted, {torch.cuda.max_memory_allocated():,} allocated"

if torch.cuda.is_available():
    print(*run(beside_the_allocator, backend="nccl").results, sep="\n")
else:
    print("no GPU here: nothing to compare with")

# %% [markdown] id="13-68418b"
# ## On GPUs
#
# The same functions run with `run(train, sharded, backend="nccl")`, if `x` and the model are on `device()`. The allocator adds to what is counted, as the cell above shows on a GPU: blocks are rounded up to 512 bytes, and cuBLAS keeps a workspace. NCCL's buffers only `nvidia-smi` shows. `torch.cuda.memory._record_memory_history()` and its viewer draw the same staircase with the stack of each tensor.
#
# ## Roads not taken
#
# * **Offload.** `CPUOffloadPolicy()` keeps parts in the host's memory.
# * **8-bit optimizers** store Adam's averages in one byte each: 2P/n become P/2n.
# * **FSDP1**, `FullyShardedDataParallel`, flattens all of a unit into one parameter. `fully_shard` has taken its place, and cuts each parameter along its first dimension.
#
# ## What you can do now
#
# * ☑ count what a step keeps alive, and say which tensor it is;
# * ☑ cut an all-reduce in two, and put an update in between;
# * ☑ say what each stage of ZeRO divides, keeps and sends;
# * ☑ make a model on `meta`, and trade activations for time;
# * ☑ gather, use and free a layer, forward and backward;
# * ☑ prefetch with two layers whole, and no more;
# * ☑ choose options of `fully_shard` by numbers;
# * ☑ clip a gradient that no rank has.
#
# **Next:** [lesson 14](14_tensor_parallel.ipynb) divides the computing, too. The lesson on which this one builds is [lesson 10](10_mini_ddp.ipynb), on DDP from the inside.
#
# ## Sources
#
# * S. Rajbhandari and others, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, SC 2020, [arXiv:1910.02054](https://arxiv.org/abs/1910.02054)
# * Y. Zhao and others, *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*, VLDB 2023, [arXiv:2304.11277](https://arxiv.org/abs/2304.11277)
# * T. Chen and others, *Training Deep Nets with Sublinear Memory Cost*, 2016, [arXiv:1604.06174](https://arxiv.org/abs/1604.06174)
# * PyTorch 2.15: [fully_shard](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) · [ZeroRedundancyOptimizer](https://docs.pytorch.org/docs/stable/distributed.optim.html) · [torch.utils.checkpoint](https://docs.pytorch.org/docs/stable/checkpoint.html) · [Meta device](https://docs.pytorch.org/docs/stable/meta.html) · [Distributed Checkpoint](https://docs.pytorch.org/docs/stable/distributed.checkpoint.html)
# * Mistakes of others: [ColossalAI#5819](https://github.com/hpcaitech/ColossalAI/issues/5819) (a matrix cut before it was flattened), [pytorch#54736](https://github.com/pytorch/pytorch/issues/54736) (the order of shards)
