# %% [markdown] id="10-093f8c"
# # Write DistributedDataParallel
#
# **Hooks, buckets and overlap by hand, until your wrapper is as fast as PyTorch's; then BatchNorm over all ranks.**
#
# ![Milliseconds per step against the number of layers in a bucket: long with one layer, short with a few, long again with all of them; the curves of a wrapper of hooks and of DDP lie on one another](../../figures/10_mini_ddp.png)
#
# *Where this goes: the size of a bucket decides how long a step takes. These are two curves, one of a wrapper like yours and one of DDP: they coincide.*
#
# | | |
# |---|---|
# | **Do** | average gradients after backward, in one call, in buckets, and while backward computes; compare with DDP; break it with one unused layer; send eight bits in place of 32; normalise over the batches of all ranks |
# | **Learn** | hooks; why buckets have a best size; why they have an order; which pass decides about `no_sync`; how a gradient passes through a collective |
# | **Need** | lessons [06](06_ddp.ipynb) (what DDP does) and [07](07_gpus.ipynb) (the modelled GPU, overlap) |
# | **Time** | about 75 minutes with the required exercise, 120 with the optional ones as well |
#
# ## When is a gradient ready?
#
# Take the smallest model with two layers: y = w₂ · w₁ · x, with w₁ = 2 and w₂ = 3. Its gradients are ∂y/∂w₂ = w₁x and ∂y/∂w₁ = w₂x. Rank 0 has x = 1, rank 1 has x = 3. So rank 0 gets 2 for w₂ and 3 for w₁, and rank 1 gets 6 and 9. The means are **4 and 6**. One process gets the same from the mean loss of both samples: this is our *reference*.
#
# Backward goes through the layers from the last to the first. w₂'s gradient is ready before w₁'s. Autograd tells us: `p.register_post_accumulate_grad_hook(f)` makes it call `f(p)` as soon as it has added to `p.grad`. Note what the hook is given: the **parameter**. The gradient is in its `.grad`.
#
# **Predict.** In which order do the hooks of the two parameters run: as in `model.parameters()`, or the other way round?

# %% id="10-4433d3"
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from course_lib import (Deadlock, Mismatch, Network, RankFailed, check, compute, draw, expect, run,
                        simulate)

# %% id="10-39bf48"
guess = None

# %% id="10-86ac0a"
def two_weights():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    arrived = []
    for name, p in model.named_parameters():
        p.data.fill_(2.0 if name == "0.weight" else 3.0)
        p.register_post_accumulate_grad_hook(lambda p, name=name: arrived.append(name))
    model(torch.tensor([[1.0 + 2 * dist.get_rank()]])).backward()
    mean = torch.tensor([model[1].weight.grad, model[0].weight.grad])
    own = mean.clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    return {"w2, w1: own": own, "w2, w1: mean": mean}, arrived

hooked = run(two_weights, world_size=2)
tables, orders = zip(*hooked.results, strict=True)
print("your guess:", guess, "  recorded:", *orders[0])
assert orders[0] == ["1.weight", "0.weight"] and tables[1]["w2, w1: mean"].tolist() == [4, 6]
draw.values(tables, caption="Each rank's own gradients, and their mean. The last layer's gradient "
            "is ready first.")

# %% [markdown] id="10-61cadd"
# ## The price of a step
#
# Now a model with L = 16 layers, on two modelled GPUs. Each layer needs F = 0.1 ms forward and B = 0.3 ms backward, and has gradients of 256 KiB, so S = 4 MiB in all. The network carries 1 GB per second and has a latency of α = 0.2 ms. That is slow, so that small buckets and large ones both cost something. As in lesson 07, an `all_reduce` of s bytes on two ranks takes c(s) = α + s·β.
#
# `seconds_per_step(attach)` times a step. `attach(model)` stands for a strategy: it may register hooks, and returns a function `finish`, which is called after backward. When `finish` returns, each `.grad` holds the mean; the last assertion compares the first layer's gradient on both ranks.

# %% id="10-595a4b"
ms, L, width = 1e-3, 16, 256  # s, layers, units of a layer
F, B, alpha, beta, layer_bytes = 0.1 * ms, 0.3 * ms, 0.2 * ms, 1e-9, 4 * width * width
S = L * layer_bytes

def gpus(step, *options):
    network = Network(latency=alpha, bandwidth=1 / beta)
    return simulate(step, *options, world_size=2, network=network, backend="nccl")

class Busy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        compute(F)
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        compute(B)
        return gradient

class Layer(nn.Linear):
    def forward(self, x):
        return Busy.apply(super().forward(x))

# %% id="10-1268f4"
import time

def seconds_per_step(attach, *options, n_steps=3):
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(width, width, bias=False) for _ in range(L)))
    wrapped, finish = attach(model, *options)
    for _ in range(n_steps):
        model.zero_grad()
        dist.barrier()
        start = time.perf_counter()
        wrapped(torch.full((1, width), 1.0 + dist.get_rank())).sum().backward()
        finish()
        torch.get_device_module("cpu").synchronize()
        seconds = time.perf_counter() - start
    return seconds, model[0].weight.grad.norm().item()

def milliseconds(attach, *options):
    job = gpus(seconds_per_step, attach, *options)
    (seconds, norm), (_, other) = job.results
    assert norm == other  # both ranks hold the same gradient
    return seconds / ms, job

# %% [markdown] id="10-672d88"
# ## After backward: sixteen calls, or one
#
# The first strategy is that of lesson 05: after backward, one call per parameter. Computing takes L·(F + B) = 6.4 ms, and then come 16 calls: 16α + Sβ = 7.4 ms more.
#
# The second copies all gradients into one flat tensor. It pays the latency once: α + Sβ = 4.4 ms. The copying costs memory, and time that the model leaves out.
#
# The third cuts the same gradients into four flat tensors, and reduces these after backward. Is that faster than one?

# %% id="10-f02d47"
def one_by_one(model):
    return model, lambda: [dist.all_reduce(p.grad, dist.ReduceOp.AVG) for p in model.parameters()]

def reduce_flat(gradients):
    flat = torch.cat([g.flatten() for g in gradients])
    work = dist.all_reduce(flat, dist.ReduceOp.AVG, async_op=True)
    return work, flat, gradients

def copy_back(work, flat, gradients):
    work.wait()
    for g, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        g.copy_(part.view_as(g))

def flat_calls(model, many):
    def finish():
        every = [p.grad for p in model.parameters()]
        size = len(every) // many
        for first in range(0, len(every), size):
            copy_back(*reduce_flat(every[first : first + size]))
    return model, finish

each, _ = milliseconds(one_by_one)
(one, after), (four, _) = (milliseconds(flat_calls, many) for many in (1, 4))
print(f"one by one {each:.2f} ms, one flat call {one:.2f} ms, four flat calls {four:.2f} ms")

# %% id="10-0f66bd"
computing, calls = L * (F + B) / ms, [(k * alpha + S * beta) / ms for k in (L, 1, 4)]
assert [round(t, 1) for t in (computing, *calls)] == [6.4, 7.4, 4.4, 5.0]
assert all(abs(t - computing - c) < 0.1 for t, c in zip((each, one, four), calls, strict=True))
draw.timeline(after, between=(after.seconds - one * ms, after.seconds), caption="One flat call: "
              "the network rests while the GPUs compute, and the GPUs rest while it works.")

# %% [markdown] id="10-8795cb"
# ## While backward computes
#
# Four flat calls after backward cost three latencies more than one. Buckets save nothing by themselves. They pay when they leave *early*: the bucket of the last layers can travel while backward computes the others.
#
# The function `overlapped` makes two changes. A hook collects gradients as they arrive and starts the reduction of each full bucket, with `async_op=True`. And nobody waits before `finish`: a `wait()` inside the hook would make the compute stream wait, and the overlap would be gone.

# %% id="10-abc564"
def overlapped(model, layers):
    arrived, on_the_way = [], []
    def ready(p):
        arrived.append(p.grad)
        if len(arrived) == layers:
            on_the_way.append(reduce_flat(arrived[:]))
            arrived.clear()
    def finish():
        for item in on_the_way + ([reduce_flat(arrived[:])] if arrived else []):
            copy_back(*item)
        on_the_way.clear(), arrived.clear()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(ready)
    return model, finish

# %% id="10-5ff369"
beside, early = milliseconds(overlapped, 4)
print(f"one flat call {one:.2f} ms, four buckets on their way in time {beside:.2f} ms")
draw.timeline(early, between=(early.seconds - beside * ms, early.seconds), caption="Four buckets: "
              "the first leaves after a quarter of backward, and almost only the last adds time.")

# %% [markdown] id="10-b41817"
# ## How large should a bucket be?
#
# With k equal buckets lesson 07's formula for overlap holds, with a bucket in place of a layer. Each bucket takes b = L·B/k of backward and c = α + Sβ/k on the network, so
#
# $$\text{step} = LF+\max(kb+c,\;b+kc)\text{ seconds}$$
#
# **Small buckets** make the second term large: k·c = kα + Sβ, a latency for each. **Large buckets** make the first one large: the last bucket leaves when backward has ended, and all of c, up to α + Sβ, is added. In between is a minimum. Before you run the cells: how many of the 16 layers should a bucket hold here? (DDP's default is 25 MiB; see "In practice".)
#
# The next cells try ten sizes, with our sketch and with DDP. `bucket_cap_mb` is in MiB and may be a fraction. DDP sends one bucket in its first step, and keeps to the cap from the second on; we time the third. Our sketch is within 5% of DDP at every size. The last cell, DDP's trace, says why: both make the same calls, of the same sizes, at the same times.

# %% id="10-ae1ba2"
def ddp(model, layers):
    wrapped = DistributedDataParallel(model, bucket_cap_mb=layers * layer_bytes / 2**20,
                                      forward_sync_buffers=False)
    return wrapped, lambda: None

sizes = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16]
ours, theirs = ([milliseconds(way, n)[0] for n in sizes] for way in (overlapped, ddp))

# %% id="10-98f0f1"
def formula(k):
    b, c = L * B / k, alpha + S * beta / k
    return (L * F + max(k * b + c, b + k * c)) / ms

equal = [n for n in sizes if L % n == 0]
assert all(abs(ours[sizes.index(n)] - formula(L // n)) < 0.1 for n in equal)
assert all(abs(a - b) < 0.05 * b for a, b in zip(ours, theirs, strict=True))  # within 5%
best = sizes[ours.index(min(ours))]
print(f"best: {best} layers, or {best * layer_bytes // 2**20} MiB, in a bucket")
assert best == 4

# %% id="10-1e316b"
_, real = milliseconds(ddp, 4)
draw.lines({"our hooks": (sizes, ours), "DistributedDataParallel": (sizes, theirs),
            "formula": (equal, [formula(L // n) for n in equal])}, "layers in a bucket",
           "ms per step", formulas=["formula"], exact=True, caption="Small buckets pay a latency "
           "each; the last of the large ones leaves late. The two curves coincide: the sketch is "
           "as fast as DDP.")

# %% id="10-7c0e60"
def last_calls(job):  # their sizes, and when they were issued, in ms before the end
    calls = [e for e in job.trace.of(0) if e.op.startswith("all_reduce")]
    return [(e.nbytes, round((job.seconds - e.issued) / ms, 2)) for e in calls[-4:]]

assert last_calls(early) == last_calls(real)
draw.timeline(real, between=(real.seconds - theirs[3] * ms, real.seconds), caption="DDP: the same "
              "four calls, each when its bucket is full and the network is free.")

# %% [markdown] id="10-e49865"
# ## Break it
#
# Our sketch fills buckets in the order in which gradients *arrive*. Nothing promises that this order is the same on all ranks. Here rank 0 does not use the middle one of three layers, so its second bucket and rank 1's hold gradients of different layers. The cell does this twice: first the layers have different sizes, then equal ones.

# %% id="10-ea7cc4"
def one_layer_unused(*sizes):
    model = nn.ModuleList(nn.Linear(*size, bias=False) for size in sizes)
    _, finish = overlapped(model, 1)
    x = model[0](torch.ones(1, sizes[0][0]))
    x = x if dist.get_rank() == 0 else model[1](x)
    model[2](x).sum().backward()
    finish()

with expect(Mismatch):
    simulate(one_layer_unused, (2, 3), (3, 3), (3, 2), world_size=2)
with expect(Deadlock):
    simulate(one_layer_unused, (3, 3), (3, 3), (3, 3), world_size=2)

# %% [markdown] id="10-61101f"
# Where sizes differ, the mistake shows. With equal sizes two buckets of different layers are added up without a word; here rank 1 makes one call more, which nobody answers. (In pytorch#72843 some ranks left a module out, and training hung.) If each rank had left out a different layer, all would have made two calls, the sums would be wrong, and nobody would know.
#
# A wrapper for every model therefore decides **once** which parameter belongs to which bucket, the same way on all ranks. It issues buckets **in their order**: one that is full waits until those before it have been issued. And `finish` issues the buckets that have not been issued when backward ends, with zeros for gradients that are missing.
#
# Real DDP issues buckets in order, too. It needs no `finish`, because autograd calls DDP at the end of backward. With `find_unused_parameters=True` it looks for unused parameters and counts their gradients as zero. Without this option their bucket is never sent, and the next forward pass raises an error (lesson 06).

# %% [markdown] id="10-027431"
# ## Your turn: make_buckets
#
# **Optional · 10.1 · difficulty ●○○ · about 10 minutes**
#
# **Goal.** Decide which parameter belongs to which bucket, without asking another rank: the first step to a wrapper for every model. Go through the parameters from the last to the first. A bucket closes when it *reaches* `cap_bytes`, with the parameter that takes it there, or when the next parameter has another dtype. Frozen parameters are left out and close no bucket. *Core* asks for float32, *sturdy* for other dtypes, and for lists that are empty or frozen altogether.
#
# In a verdict, `sizes 2 4f 2d` means three parameters: one of two floats, a frozen one of four, and one of two float64 numbers. Parameter k is filled with the number k, so you see where it went.
#
# <details>
# <summary>Hint: when does a bucket close?</summary>
#
# After the parameter that takes it to the cap, or past it. So a bucket may be larger than the cap, and with a cap of 1 byte each parameter has its own.
#
# </details>

# %% exercise="make_buckets" role="answer" points=4 required=false difficulty=1
def make_buckets(params: list[nn.Parameter], cap_bytes: int) -> list[list[nn.Parameter]]:
    """Divide the parameters that require a gradient into buckets, in reverse order.

    A bucket closes when it has reached cap_bytes or more, or when the next of them has another
    dtype. No bucket is empty. With 8, 16 and 4 bytes and a cap of 20: [[4, 16], [8]].
    """
    ### BEGIN SOLUTION
    buckets, full = [], True
    for p in params[::-1]:
        if not p.requires_grad:
            continue
        if full or p.dtype != buckets[-1][0].dtype:
            buckets.append([])
        buckets[-1].append(p)
        full = sum(q.numel() * q.element_size() for q in buckets[-1]) >= cap_bytes
    return buckets
    ### END SOLUTION

# %% exercise="make_buckets" role="check"
check(make_buckets)

# %% [markdown] id="10-b4df84"
# ## Your turn: MiniDDP
#
# **Required · 10.2 · difficulty ●●● · about 40 minutes**
#
# **Goal.** A wrapper that trains as DDP does.
#
# * **At the start** all parameters and buffers become those of rank 0.
# * **Buckets** are those of `make_buckets`: parameters that require a gradient, in reverse order of `parameters()`; a bucket closes when it *reaches* `cap_bytes`; another dtype begins another bucket.
# * **`finish()`** is called after each backward, inside and outside `no_sync`. Afterwards each `.grad` holds the mean over all ranks. A gradient that is None on some ranks counts as zero there; if it is None on all, it becomes zero or stays None.
# * **`no_sync()`**: if the forward pass ran inside the block, its backward and `finish` send nothing, and gradients add up on their rank. It does not matter where backward runs, and blocks may lie inside one another. The next pass outside reduces all that has added up.
# * A forward pass under `torch.no_grad()` has no backward. It changes nothing, even between another forward pass and its backward.
#
# **Budget:** for each pass that reduces, one `all_reduce` per bucket, in the order of the buckets, issued as soon as the bucket is full and those before it are on their way (by `finish` if it never fills); nothing else after the start. *Core* asks for 2 to 5 ranks, frozen layers, a weight that two layers share, layers that run in another order than that of `parameters()`, accumulation, and a layer that some rank does not use in some pass. *Sturdy* adds one rank, many ranks, two dtypes, float64, evaluation, passes that are half inside `no_sync`, nested blocks, and a layer that nobody uses.
#
# The check trains small models with your class. It puts a barrier before each forward pass, to tell the passes apart in the trace.
#
# <details>
# <summary>Hint: in which order to write it</summary>
#
# First everything in `finish`, without hooks: that is right, and lacks only the budget. Then hooks that count. `forward` is the place where a new count begins, and where `no_sync` is looked at.
#
# </details>
# <details>
# <summary>Hint: no_sync</summary>
#
# `@contextlib.contextmanager` makes a context manager of a method with one `yield`. After the block, what it has changed has to be as it was before.
#
# </details>

# %% exercise="MiniDDP" role="answer" points=15 required=true difficulty=3
class MiniDDP(nn.Module):
    """A module whose gradients are averaged over all ranks, in buckets, while backward computes.

    Every rank makes one of a module with the same layers, then calls forward, backward and finish
    in the same order. Buckets of cap_bytes are filled in reverse order of parameters().
    """

    def __init__(self, module: nn.Module, cap_bytes: int):
        """Make all parameters and buffers those of rank 0, in place; register the hooks."""
        super().__init__()
        ### BEGIN SOLUTION
        self.module, self.quiet, self.missing, self.sent = module, False, None, []
        for shared in (*module.parameters(), *module.buffers()):
            dist.broadcast(shared.data, src=0)
        self.plan, room = [], 0
        for weight in reversed([w for w in module.parameters() if w.requires_grad]):
            if room <= 0 or weight.dtype != self.plan[-1][0].dtype:
                self.plan.append([])
                room = cap_bytes
            self.plan[-1].append(weight)
            room -= weight.nbytes
            weight.register_post_accumulate_grad_hook(self._arrived)

    def _arrived(self, weight):
        for bucket in self.missing or ():
            bucket.discard(weight)
        while self.missing and len(self.sent) < len(self.plan) and not self.missing[len(self.sent)]:
            self._send()

    def _send(self):
        gradients = [torch.zeros_like(w) if w.grad is None else w.grad
                     for w in self.plan[len(self.sent)]]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self.sent.append((flat, dist.all_reduce(flat, dist.ReduceOp.AVG, async_op=True)))
        ### END SOLUTION

    def forward(self, *args, **kwargs):
        """What the module returns for these arguments."""
        ### BEGIN SOLUTION
        if torch.is_grad_enabled():
            self.missing = None if self.quiet else [set(bucket) for bucket in self.plan]
        return self.module(*args, **kwargs)
        ### END SOLUTION

    def finish(self) -> None:
        """After each backward: wait, and leave the mean in each .grad."""
        ### BEGIN SOLUTION
        while self.missing and len(self.sent) < len(self.plan):
            self._send()
        for bucket, (flat, work) in zip(self.plan, self.sent, strict=False):
            work.wait()
            means = flat.split([weight.numel() for weight in bucket])
            for weight, mean in zip(bucket, means, strict=True):
                weight.grad = mean.view_as(weight)
        self.missing, self.sent = None, []
        ### END SOLUTION

    def no_sync(self):
        """A context: what goes forward in it sends nothing, and gradients add up on their rank."""
        ### BEGIN SOLUTION
        from contextlib import contextmanager

        @contextmanager
        def quietly():
            self.quiet, before = True, self.quiet
            try:
                yield
            finally:
                self.quiet = before

        return quietly()
        ### END SOLUTION

# %% exercise="MiniDDP" role="try"
def mine(model, layers):
    wrapped = MiniDDP(model, layers * layer_bytes)
    return wrapped, wrapped.finish

for layers in (1, 3, 16):
    print(f"{layers:>2} layers in a bucket: yours {milliseconds(mine, layers)[0]:.2f} ms, "
          f"DDP {theirs[sizes.index(layers)]:.2f} ms")

# %% exercise="MiniDDP" role="check"
check(MiniDDP)

# %% [markdown] id="10-29cef7"
# ## A hook of your own
#
# DDP lets you replace the `all_reduce` of a bucket by a function of your own: `ddp.register_comm_hook(state, hook)`. DDP calls `hook(state, bucket)` when a bucket is full, and the hook returns a *future* whose value is what goes into the gradients. The one below sends the bucket's numbers as 8-bit integers with one scale for all ranks. `then` says what happens to the sum when it arrives, without waiting for it. (Only the scale is waited for.)
#
# This hook sends a quarter of the bytes, and one more number per bucket. The digits that it cuts off are lost: the cell prints the relative error of the gradient. (Each rank uses half of the range of int8, so that the sum of two ranks fits. With more ranks each may use less of it.)

# %% id="10-2291e2"
def eight_bits(state, bucket):
    flat = bucket.buffer()
    largest = flat.abs().max()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    steps = (flat / largest * 63).round().to(torch.int8)
    future = dist.all_reduce(steps, async_op=True).get_future()
    return future.then(lambda sent: sent.value()[0] * largest / 63 / dist.get_world_size())

def gradient(hook):
    torch.manual_seed(dist.get_rank())
    wrapped = DistributedDataParallel(nn.Linear(256, 256))
    if hook:
        wrapped.register_comm_hook(None, hook)
    torch.manual_seed(10 + dist.get_rank())
    wrapped(torch.randn(64, 256)).square().sum().backward()
    return wrapped.module.weight.grad

exact, rough = (run(gradient, hook, world_size=2) for hook in (None, eight_bits))
sent = [sum(e.nbytes for e in job.trace.of(0) if e.op == "all_reduce") for job in (exact, rough)]
error = (rough.results[0] - exact.results[0]).norm() / exact.results[0].norm()
print(f"bytes: {sent[0]:,} or {sent[1]:,}   relative error: ~{error:.3f}")
assert sent[1] == sent[0] / 4 + 4 and 0.001 < error < 0.1

# %% [markdown] id="10-6139f4"
# ## BatchNorm over all ranks
#
# BatchNorm subtracts a channel's mean over the batch and divides by √(variance + ε). Under DDP the batch is that of one rank, so eight ranks with two samples each normalise by statistics of two. SyncBatchNorm takes those of all sixteen.
#
# Let rank 0 have the one value 0, and rank 1 the values 2 and 4. Together they have mean **2** and variance (4 + 0 + 4)/3 = **8/3**. But the mean of the ranks' means is 1.5, and the mean of their variances is 0.5. To be right, ranks add up Σx, Σx² and the *count*, then divide: one `all_reduce` of three numbers per channel.
#
# The backward pass is the harder half. Every sample changes mean and variance, and so the outputs on *all* ranks. Autograd does not know `dist.all_reduce` as an operator, and treats what comes from other ranks as a constant. The next cell shows this with a sum. Each rank's total is the sum of both x, and the loss is the sum of both totals. Raising either x by 1 raises both totals, so the gradient is 2.
#
# **Predict.** What does autograd say? (The same cell shows the variances, and that PyTorch's own `nn.SyncBatchNorm` refuses to run without a GPU. Yours will run anywhere.)

# %% id="10-7ff202"
guess = None

# %% id="10-2fa22c"
def through_a_plain_sum():
    x = torch.tensor([3.0], requires_grad=True)
    total = x * 1
    dist.all_reduce(total.detach())  # total now holds the sum; without detach() PyTorch warns
    total.sum().backward()
    return total.item(), x.grad.item()

sums = run(through_a_plain_sum, world_size=2).results
print("your guess:", guess, "  sum and gradient on each rank:", *sums)
assert sums == [(6, 1), (6, 1)]  # and not (6, 2)
whole, parts = torch.tensor([0.0, 2.0, 4.0]), [torch.tensor([0.0]), torch.tensor([2.0, 4.0])]
means = [p.mean().item() for p in parts]
variances = [p.var(correction=0).item() for p in parts]
assert whole.mean() == 2 and torch.isclose(whole.var(correction=0), torch.tensor(8 / 3))
assert sum(means) / 2 == 1.5 and sum(variances) / 2 == 0.5

def on_the_cpu():
    return nn.SyncBatchNorm(1)(torch.ones(2, 1))

with expect(RankFailed):
    run(on_the_cpu, world_size=2)
draw.bars({"of all samples": 8 / 3, "mean of the ranks' variances": 0.5}, unit="", exact=True,
          caption="The mean of two variances leaves out how far apart the two means are.")

# %% [markdown] id="10-ee2c7a"
# ## Your turn: sync_batch_norm
#
# **Optional · 10.3 · difficulty ●●● · about 35 minutes**
#
# **Goal.** Normalise x, of shape (B, C) or (B, C, L), by mean and variance of each channel over all samples of all ranks, and all positions of L, then multiply by weight and add bias. This is BatchNorm in training mode, without running statistics. B may differ by rank. In the backward pass, x gets the gradient of the *sum of all ranks' losses*. Weight and bias are the same on all ranks, and keep each rank's own gradient, because DDP averages them later. **Budget:** one `all_reduce` in the forward pass, one in the backward pass, of at most three numbers per channel each. *Sturdy* adds one rank, many ranks, float64, and batches that are empty on some rank.
#
# <details>
# <summary>Hint: a sum that knows its gradient</summary>
#
# A subclass of `torch.autograd.Function` has a forward and a backward of your own. Forward: `all_reduce` of a copy. Backward: what this rank adds is part of every rank's total. Whose gradients make up its own?
#
# </details>
# <details>
# <summary>Hint: the variance from sums</summary>
#
# With n numbers per channel in all, the mean is Σx/n and the variance Σx²/n − mean². Autograd does the rest, if the sums come through your Function. In float32 this difference loses all digits if the mean is ten thousand times the standard deviation. It can turn negative, and then its root is NaN. So add up in float64.
#
# </details>

# %% exercise="sync_batch_norm" role="answer" points=8 required=false difficulty=3
def sync_batch_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """BatchNorm of x over the samples of all ranks; every rank calls it, forward and backward.

    Args:
        x: this rank's samples, (B, C) or (B, C, L); B may differ by rank, and be 0 on some.
        weight, bias: (C,), the same on all ranks.
        eps: added to the variance, under the root. The variance is divided by n, not n − 1.

    Returns (x − mean) / √(variance + eps) · weight + bias, in a graph whose backward gives x
    the gradient of all ranks' losses together, and weight and bias that of this rank's.
    """
    ### BEGIN SOLUTION
    class Total(torch.autograd.Function):
        @staticmethod
        def forward(ctx, own):
            ctx.mark_dirty(own)
            dist.all_reduce(own)
            return own
        @staticmethod
        def backward(ctx, own):
            everybodys = own.contiguous().clone()
            dist.all_reduce(everybodys)
            return everybodys

    samples = x.movedim(1, -1).double()  # squares lose digits, and twice as many are left
    rows = samples.flatten(0, -2)
    counted = rows.new_full(bias.shape, len(rows))
    sums, squares, count = Total.apply(torch.stack([rows.sum(0), rows.pow(2).sum(0), counted]))
    centre = sums / count
    spread = (squares / count - centre.pow(2) + eps).sqrt()
    return ((samples - centre) / spread * weight + bias).movedim(-1, 1).to(x.dtype)
    ### END SOLUTION

# %% exercise="sync_batch_norm" role="check"
check(sync_batch_norm)

# %% [markdown] id="10-34f686"
# ## In practice
#
# All of this is as torch 2.15 has it:
#
# * **`bucket_cap_mb`** is 25 MiB by default, and then the first bucket closes at 1 MiB, so that something leaves early. A value of your own holds for all buckets. If a timeline shows many short calls that wait for one another, try a larger one; if one long call remains after backward, a smaller one.
# * **`gradient_as_bucket_view=True`** lets each `.grad` be a view of its bucket. This saves the copies, and memory of the size of all gradients.
# * **`static_graph=True`** promises that the same parameters are used in every step. DDP then need not search for unused ones, and can allow checkpointing that goes through a layer several times.
# * **`register_comm_hook`** takes the place of a bucket's `all_reduce`, as above. `default_hooks` has float16 and bfloat16, `powerSGD_hook` compresses further.
# * **`nn.SyncBatchNorm`** gathers each rank's mean, inverse standard deviation and count (`all_gather`): means of unequal batches cannot be added up, your sums can. Its backward makes one `all_reduce` of two numbers per channel; yours may send three.
#
# `replicate`, still in a private module of torch 2.15, averages gradients in FSDP's way. It makes no buckets: each module on which you call it is reduced in one call, when its backward is over. It sends nothing at the start, so the ranks' parameters have to be equal already. It takes FSDP's `mesh`, `mp_policy` and `offload_policy`.
#
# **When DDP is not enough.** DDP repeats everything on every rank. With Adam in float32 a parameter takes 4 bytes for itself, 4 for its gradient and 8 for Adam's averages; buckets add 4 unless gradients are views of them. ZeRO divides some of this among the n ranks (Rajbhandari and others, 2020). With these numbers, its stages leave per parameter and rank:
#
# | | repeated on every rank | n = 8 |
# |---|---|---|
# | DDP | all of it | 16 bytes |
# | ZeRO 1 | parameters and gradients; Adam's averages divided | 9 bytes |
# | ZeRO 2 | parameters; gradients divided, too | 5.5 bytes |
# | ZeRO 3, FSDP | nothing | 2 bytes |

# %% id="10-fecaac"
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh

def replicated():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("replicate",))
    for part in [*model, model]:
        replicate(part, mesh=mesh)
    model(torch.ones(2, 8)).sum().backward()

calls = [(e.op, e.nbytes) for e in run(replicated, world_size=2).trace.of(0)]
print(calls)
assert calls == [("all_reduce", 4 * (8 * 8 + 8))] * 3  # one per module, and none at the start

# %% id="10-173e00"
n, parameter, grad, adam = 8, 4, 4, 8  # ranks, bytes, bytes, bytes
kept = {"DDP": parameter + grad + adam, "ZeRO 1": parameter + grad + adam / n,
        "ZeRO 2": parameter + (grad + adam) / n, "FSDP": (parameter + grad + adam) / n}
assert list(kept.values()) == [16, 9, 5.5, 2]
draw.bars(kept, unit="bytes", exact=True, caption="What a parameter takes on each of eight ranks: "
          "DDP repeats all of it, FSDP nothing.")

# %% [markdown] id="10-1272f6"
# ## Roads not taken
#
# * **Hooks on the autograd engine.** DDP's reducer is C++ and asks the engine to be called at the end of backward, so you need no `finish`.
# * **Rebuilding.** DDP records in the first step in which order gradients arrive, and then fills buckets in this order, announced by rank 0 (not with `find_unused_parameters=True`). Reverse order of `parameters()` is a guess at it.
# * **Reducing less often.** Local SGD averages the parameters every few steps. It is another algorithm, with other results.
#
# ## What you can do now
#
# * ☑ hook into backward, and know when a gradient is ready;
# * ☑ overlap reductions with backward, and choose the size of a bucket;
# * ☑ say why buckets have an order, and what an unused parameter does to it;
# * ☑ write a wrapper that trains as DDP does, `no_sync` included;
# * ☑ replace a bucket's reduction by one of your own;
# * ☑ take a gradient through a collective.
#
# **Next:** [lesson 11](11_debugging.ipynb) starts broken jobs, and reads what can be known of a hang. Before this came [lesson 09](09_trees_at_scale.ipynb), trees and hierarchies.
#
# ## Sources
#
# * S. Li and others, *PyTorch Distributed: Experiences on Accelerating Data Parallel Training*, VLDB 2020, [doi:10.14778/3415478.3415530](https://doi.org/10.14778/3415478.3415530) (buckets, overlap, unused parameters)
# * PyTorch 2.15: [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html) · [Communication hooks](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html) · [register_post_accumulate_grad_hook](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_post_accumulate_grad_hook.html) · [SyncBatchNorm](https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html) · [Extending autograd](https://docs.pytorch.org/docs/stable/notes/extending.html)
# * S. Ioffe, C. Szegedy, *Batch Normalization*, ICML 2015, [arXiv:1502.03167](https://arxiv.org/abs/1502.03167)
# * S. Rajbhandari and others, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, SC 2020, [arXiv:1910.02054](https://arxiv.org/abs/1910.02054)
# * Mistakes and questions of others: [pytorch#72843](https://github.com/pytorch/pytorch/issues/72843) (a module that only some ranks run), [pytorch#36688](https://github.com/pytorch/pytorch/issues/36688) (counts ignored in backward), [picotron#39](https://github.com/huggingface/picotron/issues/39) (parameter or gradient?)
