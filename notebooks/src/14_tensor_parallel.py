# %% [markdown] id="14-330b33"
# # Cut a layer through the middle
#
# **Let every rank compute a part of every layer, forward and backward, and give a wrong gradient a name.**
#
# ![Time of a layer against the number of GPUs that share it: inside a node it falls with each GPU, and across nodes it hardly does](../../figures/14_tensor_parallel.png)
#
# *Where this goes: one layer on modelled GPUs, cut into n parts. Inside a node of eight GPUs each one makes it faster. Across nodes, from eight GPUs on, more than half of the time is talking.*
#
# | | |
# |---|---|
# | **Do** | train a model that is wrong and looks right; cut an MLP, attention heads and a vocabulary; send keys and values round a ring; measure who computes how much; then `parallelize_module` |
# | **Learn** | why columns come before rows; which sums belong in forward and which in backward; what autograd knows of a collective; why tensor parallelism stays inside a node |
# | **Need** | lessons [04](04_ring_all_reduce.ipynb) (the ring) and [10](10_mini_ddp.ipynb) (a gradient through a collective); [13](13_sharding.ipynb) has `count_memory` |
# | **Time** | about 70 minutes with the required exercise, 135 with the optional ones as well |
#
# ## A model that trains and is wrong
#
# Data parallelism repeats the model, and lesson 13 stores it in parts. *Tensor parallelism* divides the computing itself: each of n ranks has a part of every large layer, and all ranks see the same samples.
#
# Below is a network for digits: a layer of 32 units, then an *MLP* (two linear layers with a `gelu` between them) whose 64 hidden units are divided, then a layer of 10. On two ranks each has half of the hidden units: their rows of `w1` and `b1`, and their columns of `w2`. Each half gives a share of the output. The class `Summed` adds up the shares in forward, and in backward it hands the gradient on as it is.
#
# On one rank the part is the whole model. That is our *reference*.

# %% id="14-bc43f4"
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from course_lib import (Network, RankFailed, check, compare_gradients, compute, count_memory, draw,
                        expect, load_digits, run, simulate)

# %% id="14-18e874"
DIM = {"w1": 0, "b1": 0, "w2": 1}  # what is cut, and along which dimension
SHAPES = {"first": (32, 64), "w1": (64, 32), "b1": (64,), "w2": (32, 64), "b2": (32,),
          "last": (10, 32)}
images, digits = load_digits().tensors
images, digits = images[:256].flatten(1), digits[:256]

def parts(rank, n):
    torch.manual_seed(0)
    whole = {name: torch.randn(shape) * shape[-1] ** -0.5 for name, shape in SHAPES.items()}
    return {name: (t.chunk(n, DIM[name])[rank] if name in DIM else t).clone().requires_grad_()
            for name, t in whole.items()}

class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, share):
        total = share.clone()
        dist.all_reduce(total)
        return total
    @staticmethod
    def backward(ctx, gradient):
        return gradient

def as_it_is(x):
    return x

# %% id="14-81e5ba"
def train(before=as_it_is, steps=60):
    p, losses, first = parts(dist.get_rank(), dist.get_world_size()), [], None
    for _ in range(steps):
        x = before(F.tanh(F.linear(images, p["first"])))
        hidden = F.gelu(F.linear(x, p["w1"], p["b1"]))
        y = Summed.apply(F.linear(hidden, p["w2"])) + p["b2"]
        loss = F.cross_entropy(F.linear(y, p["last"]), digits)
        gradients = dict(zip(p, torch.autograd.grad(loss, p.values()), strict=True))
        with torch.no_grad():
            for name, t in p.items():
                t -= 0.2 * gradients[name]
        first = first or gradients
        losses.append(loss.item())
    return losses, first

# %% [markdown] id="14-198cf6"
# **Predict.** Two ranks train, and the loss falls. The model has six tensors: first, w1, b1, w2, b2, last. Which of them has a wrong gradient?

# %% id="14-a18e21"
guess = None

# %% id="14-bc093b"
def first_gradients(job):
    return [gradients for _, gradients in job.results]

one, two = run(train, world_size=1), run(train, world_size=2)
reference = first_gradients(one)[0]
found = compare_gradients(reference, first_gradients(two))
print("your guess:", guess)
print(found)
assert [f.name for f in found if f.kind != "equal"] == ["first"]
assert abs(two.results[0][0][0] - one.results[0][0][0]) < 1e-5 and two.results[0][0][-1] < 1
curves = {"one process": one, "two ranks": two}
draw.lines({name: (range(60), job.results[0][0]) for name, job in curves.items()}, "step", "loss",
           caption="Both losses fall. Nothing in the curve of the two ranks says that a gradient "
           "is wrong.")

# %% [markdown] id="14-839c2e"
# Forward is right: the first losses are equal. But each rank's gradient of `first` is only what came back through its half of the hidden units. The sum of both would be right, and nobody has added them up. So `first`, which should be the same on both ranks, changes differently on each. One model slowly becomes two.
#
# `compare_gradients` takes the gradients of one process and those of each rank. It says in a word what is wrong with each ([docs/gradients.md](../../docs/gradients.md) has all the words).
#
# ## Columns, then rows
#
# Why is the MLP cut this way? In formulas a layer is x·A with A = w1ᵀ: one *column* of A for each hidden unit. (PyTorch stores A transposed, so these columns are the rows of `w1`.) A rank that has some columns of A computes these hidden units whole, and may apply `gelu` to each. The second layer has a *row* of B = w2ᵀ for each hidden unit. The rank's units meet just these rows, and give a share of the output:
#
# $$y = \text{gelu}(xA+b_1)B+b_2 = \sum_r\text{gelu}(xA_r+b_{1,r})B_r+b_2$$
#
# Here $b_{1,r}$ are the biases of rank r's hidden units.
#
# So ranks need not talk between the two layers: **one sum at the end** is enough. If the first layer were cut by rows, each rank would have a share of every hidden unit, and `gelu` of a share is of no use. The cell tries both, in one process.

# %% id="14-75cbd0"
whole = parts(0, 1)
halves = [parts(rank, 2) for rank in range(2)]
x = F.tanh(F.linear(images, whole["first"]))
y = F.linear(F.gelu(F.linear(x, whole["w1"], whole["b1"])), whole["w2"])
shares = [F.linear(F.gelu(F.linear(x, p["w1"], p["b1"])), p["w2"]) for p in halves]

in_shares = [F.linear(h, w) for h, w in zip(x.chunk(2, 1), whole["w1"].chunk(2, 1), strict=True)]
hidden = F.linear(x, whole["w1"])
errors = {"columns, then rows: y": sum(shares) - y,
          "rows first: x·A": sum(in_shares) - hidden,
          "rows first: gelu(x·A)": sum(map(F.gelu, in_shares)) - F.gelu(hidden)}
for name, error in errors.items():
    print(f"{name:<22} off by at most {error.abs().max().item():.2f}")
assert [error.abs().max() < 1e-5 for error in errors.values()] == [True, True, False]

# %% [markdown] id="14-e978e1"
# ## f and g
#
# The gradient of y is the same on all ranks, and each rank takes it back through *its* units. That gives the rank the whole gradients of its parts of w1, b1 and w2, since nobody else has these units. The gradient of x is a sum again: x went into all units. Megatron-LM has two functions for these sums, f and g:
#
# | | where | forward | backward |
# |---|---|---|---|
# | **f** | before the first layer | x as it is | sum over the ranks |
# | **g** | after the second layer | sum over the ranks | the gradient as it is |
#
# Our model has g and lacks f. Why does g not sum in backward, too? It would have to, if each rank had a loss of its own and all losses were added up. But here all ranks compute *the same* loss, and it counts once. If g summed in backward, every gradient that backward reaches after g would be n times too large.
#
# ## Your turn: parallel_mlp
#
# **Required · 14.1 · difficulty ●●○ · about 25 minutes**
#
# **Goal.** Write the MLP for n ranks, differentiable. Every rank has the same x (B rows of D) and the same b2, and its own part: w1 is (h, D), b1 is (h), w2 is (D, h). h may differ from rank to rank. Return gelu(x·w1ᵀ + b1)·w2ᵀ + b2 of the whole MLP, on every rank, and leave what you are given as it was. All ranks compute the same loss from it. The gradients of a rank's parts are parts of the whole MLP's; those of x and b2 are whole, and the same on all ranks. They come from backward: `check` asks for them by `torch.autograd.grad`, and uses the function twice in one graph.
#
# **Budget.** One `all_reduce` of B·D numbers forward, and one backward. *Sturdy* adds one rank, many ranks, a rank without units, no rows, float64, and an x that lies in memory by columns.
#
# <details>
# <summary>Hint: a function with a backward of its own</summary>
#
# `Summed` above shows the form. A collective writes into its tensor: let it write into a copy. A gradient may come with strides, and `clone()` keeps them: `gradient.contiguous().clone()`.
#
# </details>
# <details>
# <summary>Hint: where does b2 go?</summary>
#
# How often is it added, and by whom? Then look at its gradient: if each rank adds b2/n, only forward is right.
#
# </details>

# %% exercise="parallel_mlp" role="answer" points=12 required=true difficulty=2
def parallel_mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """gelu(x·w1ᵀ + b1)·w2ᵀ + b2 of the whole layer, on every rank.

    x (B, D) and b2 (D) are the same on all ranks; w1 (h, D), b1 (h) and w2 (D, h) belong to this
    rank's h hidden units. Every rank calls it, forward and backward.
    """
    ### BEGIN SOLUTION
    class Copied(torch.autograd.Function):  # f
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            total = gradient.contiguous().clone()
            dist.all_reduce(total)
            return total

    class Added(torch.autograd.Function):  # g
        @staticmethod
        def forward(ctx, share):
            total = share.clone()
            dist.all_reduce(total)
            return total

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    hidden = F.gelu(F.linear(Copied.apply(x), w1, b1))
    return Added.apply(F.linear(hidden, w2)) + b2
    ### END SOLUTION

# %% exercise="parallel_mlp" role="try"
def my_gradients():
    p, x = parts(dist.get_rank(), dist.get_world_size()), images[:4, :32].requires_grad_()
    given = {"x": x} | {name: p[name] for name in ("w1", "b1", "w2", "b2")}
    loss = parallel_mlp(*given.values()).square().sum()
    return dict(zip(given, torch.autograd.grad(loss, given.values()), strict=True))

compare_gradients(run(my_gradients, world_size=1).results[0], run(my_gradients, world_size=2))

# %% exercise="parallel_mlp" role="check"
check(parallel_mlp)

# %% [markdown] id="14-9ee4eb"
# ## The model, mended
#
# A shorter way to write f is a hook: it sees the gradient of a tensor on its way, and may return another one. Hang the hook on a view of x. On x itself it would stay after the call, and would sum what reaches x by other paths, too. With this f the model above is right, and sends what the budget allows. The second cell draws four ranks, whose weights are 1, 10, 100 and 1000. So the digits of a sum say which ranks are in it.

# %% id="14-bc9d6c"
def f(x):
    def total(gradient):
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient
    x = x.view_as(x)
    x.register_hook(total)
    return x

mended = run(train, f, 1, world_size=2)
ours = [e.nbytes for e in mended.trace.of(0)]
print(compare_gradients(reference, first_gradients(mended)), "  bytes forward and backward:", ours)
assert ours == [256 * 32 * 4] * 2

# %% id="14-fcc1b7"
def who(number):
    return {rank for rank in range(4) if int(number) // 10**rank % 10}

def both_ways():
    rank, on_the_way = dist.get_rank(), []
    x = torch.ones((), requires_grad=True)
    inside = f(x).view(())
    inside.register_hook(lambda gradient: on_the_way.append(who(gradient)))
    share = inside * 10.0**rank
    y = Summed.apply(share)
    y.backward()
    return {"forward, before g": who(share), "forward, after g": who(y),
            "backward, before f": on_the_way[0], "backward, after f": who(x.grad)}

draw.values(run(both_ways), caption="Which ranks' shares are in what each rank holds: the output "
            "is whole after g, and the gradient of x after f.")

# %% [markdown] id="14-457202"
# ## What autograd knows of a collective
#
# Write `dist.all_reduce(y)` in the middle of a model, and the gradient may even be right. Autograd does not see the call: to it y is what it was before, so the gradient goes through as it is. That is g, by accident. The next cell tries it after two operators, 2·x and eˣ, on two ranks. Then it tries the all_reduce of PyTorch's *functional collectives*, which autograd does see. The slopes of g, 2 and 2.72, are right. Guess: which of the other four are?

# %% id="14-5a8c0b"
import warnings

from torch.distributed import _functional_collectives as functional

def unseen(y):
    dist.all_reduce(y)
    return y

def seen(y):
    return functional.all_reduce(y, "sum", dist.group.WORLD)

def slope(operator, reduce):
    warnings.simplefilter("ignore")  # torch says here: "may lead to silently incorrect behavior"
    x = torch.ones(1, requires_grad=True)
    y = 2 * x if operator == "2x" else x.exp()
    reduce(y).sum().backward()
    return round(x.grad.item(), 2)

slopes = {way: [run(slope, operator, way, world_size=2).results[0] for operator in ("2x", "exp")]
          for way in (Summed.apply, unseen, seen)}
for name, found in zip(("g", "dist.all_reduce", "functional"), slopes.values(), strict=True):
    print(f"{name:<16} of 2x: {found[0]:.2f}   of exp(x): {found[1]:.2f}")
assert [*slopes.values()] == [[2.0, 2.72], [2.0, 5.44], [4.0, 5.44]]

# %% [markdown] id="14-9e7d2b"
# After 2·x the plain all_reduce is right by accident. After eˣ it is wrong. The slope of eˣ is eˣ itself: autograd has kept that tensor, and the sum has been written into it since. So a rank's gradient is the sum of both ranks' eˣ, here twice its own. Autograd usually notices such a write, but under gloo it does not notice that of a collective. PyTorch warns of it. The functional all_reduce sums again in backward. That is right for the sum of all ranks' losses, and too large for one loss. So write down both directions yourself, or use a library that knows which of the two you mean.
#
# ## Heads, and the vocabulary
#
# **Attention** is cut in the same way, by heads. Each rank has some of them: the rows of the query, key and value weights that make them, and the columns of the output projection that take them. f comes before, g comes after, and nobody talks in between. The cell cuts four heads into two halves.

# %% id="14-2b71d4"
def attention(x, qkv, out, heads):
    q, k, v = (t.view(len(x), heads, -1).transpose(0, 1) for t in F.linear(x, qkv).chunk(3, 1))
    return F.linear(F.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1), out)

torch.manual_seed(0)
x, qkv, out = torch.randn(5, 8), torch.randn(3, 8, 8), torch.randn(8, 8)  # 4 heads of 2
mine = [attention(x, w.flatten(0, 1), o, heads=2)
        for w, o in zip(qkv.chunk(2, 1), out.chunk(2, 1), strict=True)]
error = (sum(mine) - attention(x, qkv.flatten(0, 1), out, heads=4)).abs().max().item()
print(f"half of the heads on each of two ranks, added up: off by at most {error:.2f}")
assert error < 1e-5

# %% [markdown] id="14-c05e3a"
# **The embedding** has a row for each word of the vocabulary. Each rank has some rows, and gives zeros for words whose rows are elsewhere. g adds up what the ranks give.
#
# **The last layer** makes V numbers for each of B rows, the *logits*, and the loss looks at all of them. If each rank has some of the columns, gathering costs B·V numbers. But the loss of a row with target t needs just three numbers from all columns, the maximum m, the sum and the target's logit l_t:
#
# $$\text{loss} = \log\sum_j e^{l_j-m}-(l_t-m) \quad\text{with}\quad m = \max_j l_j$$
#
# The maximum m keeps exp from overflowing. Whatever number is subtracted, the loss is the same. So m counts as a constant, and no gradient goes through it. The sum is over all ranks' columns, and the target's logit is on one rank. In backward each rank has all it needs: the gradient of l_j is exp(l_j − m)/Σ, where Σ is that sum, less 1 in the target's column.
#
# ## Your turn: vocab_parallel_cross_entropy
#
# **Optional · 14.2 · difficulty ●●○ · about 25 minutes**
#
# **Goal.** This rank's `logits` (B, v) are the columns `first` to `first + v − 1` of the whole. `targets` (B) are columns of the whole, alike on all ranks. Return the B losses, differentiable, and the same on every rank. Logits and targets stay as they were. v may differ by rank. Logits may be in the hundreds.
#
# **Budget.** Each rank puts 3·B numbers into collectives forward, in at most three calls, however large V is; no call backward. *Sturdy* adds one rank, many ranks, no rows, a rank without columns and float64.
#
# <details>
# <summary>Hint: the target's logit</summary>
#
# The one rank that has the column gives l_t − m, all others 0; then the sum is right. This sum and the sum of the exponentials can travel together.
#
# </details>

# %% exercise="vocab_parallel_cross_entropy" role="answer" points=6 required=false difficulty=2
def vocab_parallel_cross_entropy(logits: Tensor, first: int, targets: Tensor) -> Tensor:
    """The cross-entropy of each row, the same on every rank.

    logits (B, v) are the columns from first on; targets (B) int64 number all ranks' columns.
    Every rank calls it; nobody says anything in backward.
    """
    ### BEGIN SOLUTION
    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            rows, v = logits.shape
            top = logits.amax(1) if v else logits.new_full((rows,), -torch.inf)
            dist.all_reduce(top, dist.ReduceOp.MAX)
            shifted = logits - top[:, None]
            is_target = torch.arange(first, first + v) == targets[:, None]
            powers = shifted.exp()
            both = torch.stack([powers.sum(1), (shifted * is_target).sum(1)])
            dist.all_reduce(both)
            ctx.save_for_backward(powers / both[0][:, None], is_target)
            return both[0].log() - both[1]

        @staticmethod
        def backward(ctx, gradient):
            share, is_target = ctx.saved_tensors
            return (share - is_target.to(share.dtype)) * gradient[:, None]

    return Loss.apply(logits)
    ### END SOLUTION

# %% exercise="vocab_parallel_cross_entropy" role="check"
check(vocab_parallel_cross_entropy)

# %% [markdown] id="14-790a71"
# ## A long sequence, round a ring
#
# Attention compares each row of a sequence with all rows before it. Let each of n ranks have some rows of the queries q, keys k and values v. A rank's queries need everybody's keys and values. To gather all of them takes memory for the whole sequence on every rank. *Ring attention* sends them round, as lesson 04 sent chunks: in each step a rank computes with the block that it has. Meanwhile it sends that block to its right neighbour, and the next one comes from the left. After n − 1 such steps each rank has had all blocks.
#
# A softmax over scores that come block by block needs the same trick as the vocabulary: subtract a maximum, and then add up. But the maximum is not known yet. So keep for each row the maximum m so far, the sum s of exp(score − m), and the sum o of exp(score − m)·v. When a block brings a larger maximum m', everything that has been added up is too large: multiply s and o by exp(m − m'). In the end the result is o/s. This is an *online softmax*.
#
# The mask is *causal*: a row sees the rows whose place in the sequence is not after its own. So places travel with keys and values. If a row sees nothing of a block, all its scores there are masked: they are −∞. A softmax of nothing is 0/0, which is NaN, and 0 · NaN stays NaN.
#
# ## Your turn: ring_attention
#
# **Optional · 14.3 · difficulty ●●● · about 40 minutes**
#
# **Goal.** Each rank has rows of q, k and v, each (L, d), at least one; `where` (L) says their places in the sequence, rising, with gaps or without. Return softmax(q·kᵀ/√d)·v for this rank's rows, over all rows whose place is not after their own. Forward only.
#
# **Budget.** Each rank sends n − 1 blocks, all to one neighbour. A block may be one message, or several: keys, values and places each in their own. Blocks may be padded. Beside a rank's own block, at most two blocks of others are alive at once. *Sturdy* adds ranks with different numbers of rows (a collective of at most 8·n bytes may tell the lengths), scores in the thousands, above and below zero, thousands of places, one rank, many ranks, and float64.
#
# <details>
# <summary>Hint: which block first?</summary>
#
# A row always sees itself. If a rank begins with its own block, the maximum is a number from the start, and exp(−∞ − m) is 0.
#
# </details>
# <details>
# <summary>Hint: one message</summary>
#
# `torch.cat([k, v, where[:, None].to(k.dtype)], 1)` is one tensor. Mind the dtype: float32 holds every whole number up to 2²⁴, bfloat16 only up to 256. For bfloat16 keys, send the places by themselves.
#
# </details>

# %% exercise="ring_attention" role="answer" points=8 required=false difficulty=3
def ring_attention(q: Tensor, k: Tensor, v: Tensor, where: Tensor) -> Tensor:
    """Causal attention of this rank's rows over the rows of all ranks.

    q, k, v (L, d); where (L,) int64, the places of these rows in the sequence. Every rank calls it.
    """
    ### BEGIN SOLUTION
    rank, n, d = dist.get_rank(), dist.get_world_size(), q.shape[1]
    lengths = torch.zeros(n, dtype=torch.int64)
    lengths[rank] = len(k)
    dist.all_reduce(lengths)
    top = q.new_full((len(q), 1), -torch.inf)
    total, out = q.new_zeros(len(q), 1), torch.zeros_like(q)
    block = torch.cat([k, v, where[:, None].to(k.dtype)], 1)
    for step in range(n):
        works = []
        if step < n - 1:
            coming = block.new_empty(int(lengths[(rank - step - 1) % n]), block.shape[1])
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, block, (rank + 1) % n),
                                            dist.P2POp(dist.irecv, coming, (rank - 1) % n)])
        hidden = block[:, -1] > where[:, None]
        scores = (q @ block[:, :d].t() / d**0.5).masked_fill(hidden, -torch.inf)
        new = torch.maximum(top, scores.amax(1, keepdim=True))
        powers, shrink = (scores - new).exp(), (top - new).exp()
        total = total * shrink + powers.sum(1, keepdim=True)
        out = out * shrink + powers @ block[:, d : 2 * d]
        top = new
        for work in works:
            work.wait()
        block = coming if step < n - 1 else block
    return out / total
    ### END SOLUTION

# %% exercise="ring_attention" role="check"
check(ring_attention)

# %% [markdown] id="14-305c77"
# ## Who computes how much
#
# If each rank has one block of places, the mask makes the work uneven: the first rank's rows see little, the last rank's see almost all. There are two other ways. In *zigzag* each rank has a block from the front and its mirror image from the back. *Dealt out* like cards, place p goes to rank p mod n. The cell plays 8 ranks with 64 rows each. A rank takes 0.1 µs for each score that is not masked. Guess: which is the fastest?

# %% id="14-83a0c2"
n, length = 8, 512
ranges = torch.arange(length).chunk(2 * n)
LAYOUTS = {"blocks": torch.arange(length).chunk(n),
           "zigzag": [torch.cat([ranges[r], ranges[-1 - r]]) for r in range(n)],
           "dealt out": [torch.arange(r, length, n) for r in range(n)]}

def pairs(mine, others):
    return int((others <= mine[:, None]).sum())

def ring_step_by_step(places):
    rank, block = dist.get_rank(), torch.empty(64, 129)  # keys, values and places
    for step in range(n):
        works = []
        if step < n - 1:
            coming = torch.empty_like(block)
            works = [dist.isend(block, (rank + 1) % n), dist.irecv(coming, (rank - 1) % n)]
        if work := pairs(places[rank], places[(rank - step) % n]):
            compute(1e-7 * work)
        for work in works:
            work.wait()
        block = coming if works else block

# %% id="14-639a9b"
jobs = {name: simulate(ring_step_by_step, places, world_size=n) for name, places in LAYOUTS.items()}
work = {name: [sum(pairs(mine, others) for others in places) for mine in places]
        for name, places in LAYOUTS.items()}
print({name: f"{1e3 * job.seconds:.2f} ms" for name, job in jobs.items()})
assert work["blocks"][-1] > 14 * work["blocks"][0] and len({*work["zigzag"]}) == 1
draw.timeline(jobs["blocks"], caption="In blocks: rank 0 computes once, and rank 7 in every step.")

# %% [markdown] id="14-6a88f4"
# Zigzag and dealt out take about half of the time of blocks, with the same work in total.
#
# ## Memory against length
#
# The next cell counts the bytes of keys, values and scores on one of 4 ranks: in a ring, which has the blocks of two steps, and with all keys and values gathered.

# %% id="14-73f557"
def attend(is_ring, length, d=16):
    rank, rows = dist.get_rank(), length // 4
    q, block = torch.ones(rows, d), torch.ones(2, rows, d)
    with count_memory(q, block) as memory:
        if not is_ring:
            k, v = (torch.empty(length, d) for _ in range(2))
            for whole, mine in zip((k, v), block, strict=True):
                dist.all_gather_single(whole, mine)
            (q @ k.t()).softmax(1) @ v
        top, total, out = (torch.full((rows, k), start)
                           for k, start in ((1, -torch.inf), (1, 0.0), (d, 0.0)))
        for step in range(4 if is_ring else 0):
            scores = q @ block[0].t()
            new = torch.maximum(top, scores.amax(1, keepdim=True))
            powers, shrink = scores.sub_(new).exp_(), (top - new).exp()
            total, top = total * shrink + powers.sum(1, keepdim=True), new
            out = out * shrink + powers @ block[1]
            if step < 3:
                coming = torch.empty_like(block)
                sent = dist.isend(block, (rank + 1) % 4)
                dist.recv(coming, (rank - 1) % 4)
                sent.wait()
                block = coming
    return memory.peak

# %% id="14-e333e4"
lengths = [128, 256, 512, 1024, 2048]
peaks = {name: [max(simulate(attend, is_ring, length, world_size=4).results) for length in lengths]
         for name, is_ring in (("ring", True), ("gathered", False))}
assert all(row[-1] > 3.5 * row[-2] for row in peaks.values())
draw.lines({name: (lengths, row) for name, row in peaks.items()}, "length", "bytes", loglog=True,
           exact=True, caption="Bytes alive at the peak on one of four ranks, by length.")

# %% [markdown] id="14-598eca"
# Both curves rise with the square of the length, because both ways make a matrix of scores. With all keys it is four times as large. A kernel like FlashAttention works in small tiles and never makes the matrix. Then keys and values remain: of the whole sequence if they are gathered, and of two blocks in the ring.
#
# ## Why it stays inside a node
#
# Tensor parallelism talks in the middle of every layer, and the next operator waits for the sum. In a transformer each layer has two such sums in forward and two in backward, one for attention and one for the MLP. Take B = 4,096 tokens, D = 8,192 and bfloat16: a sum has 67 MB. One layer takes about 72·B·D² operations forward and backward, and we take a GPU that does 400·10¹² of them per second.
#
# The cell simulates such a layer, divided among n GPUs: inside one node of eight (450 GB/s for each GPU), or with one GPU in each node (50 GB/s). Bytes and bandwidths are both divided by 4,096, so that tensors are small.

# %% id="14-72124c"
tokens, width, scale = 4096, 8192, 4096
whole_layer = 72 * tokens * width**2 / 400e12  # seconds on one GPU

def layer():
    activations = torch.empty(2 * tokens * width // scale // 4)  # 4 bytes each
    for _ in range(4):
        compute(whole_layer / 4 / dist.get_world_size())
        dist.all_reduce(activations)

def milliseconds(n, bandwidth):
    network = Network(latency=2e-6, bandwidth=bandwidth / scale)
    return 1e3 * simulate(layer, world_size=n, network=network, backend="nccl").seconds

counts = [1, 2, 4, 8, 16, 32]
times = {"NVLink": [milliseconds(n, 450e9) for n in counts if n <= 8],
         "InfiniBand": [milliseconds(n, 50e9) for n in counts]}
for name, row in times.items():
    print(f"{name:<11}", *(f"{t:6.1f} ms" for t in row))
assert times["InfiniBand"][3] > 2 * times["InfiniBand"][0] / 8 > times["NVLink"][3]
draw.lines({name: (counts[:len(row)], row) for name, row in times.items()}, "GPUs", "ms",
           loglog=True, exact=True, caption="A layer cut into n parts: on NVLink each of a node's "
           "eight GPUs makes it faster, with InfiniBand soon hardly any more.")

# %% [markdown] id="14-ce6521"
# Across nodes, from eight GPUs on, more than half of the time is talking. So n is seldom larger than the number of GPUs in a node.
#
# ## In practice: parallelize_module
#
# PyTorch has f and g as *styles*. `ColwiseParallel` cuts a linear layer by its outputs, and its backward sums the gradient of x: it holds f. `RowwiseParallel` cuts by inputs, and its forward sums the output: it holds g. The parameters become **DTensors**. A DTensor is a tensor that knows its mesh, and how it lies there: `Shard(0)`, `Replicate()`, or `Partial()` for what still awaits a sum. `CommDebugMode` counts the collectives.

# %% id="14-06c851"
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

def cut_by_torch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}), mesh

def by_torch():
    model, x = cut_by_torch()[0], torch.ones(256, 32, requires_grad=True)
    dist.barrier()
    with CommDebugMode() as counted:
        model(x).square().mean().backward()
    local = {name: p.grad.to_local() for name, p in model.named_parameters()}
    return local | {"x": x.grad}, sum(counted.get_comm_counts().values())

whole, job = run(by_torch, world_size=1), run(by_torch, world_size=2)
calls = [(e.op, e.nbytes) for e in job.trace.of(0)]
calls = calls[[op for op, _ in calls].index("barrier") + 1 :]
print(compare_gradients(whole.results[0][0], [gradients for gradients, _ in job.results]))
print("CommDebugMode counts", job.results[0][1], "  recorded:", calls, "  ours:", ours)
assert [nbytes for _, nbytes in calls] == ours and job.results[0][1] == len(ours)

# %% [markdown] id="14-45d9c7"
# ## Break it: a plain tensor among DTensors
#
# A DTensor does not mix with plain tensors. Call the module, which converts its input. Or say what the plain tensor is: this one is the same on all ranks, so `Replicate()`.

# %% id="14-24f905"
def mixed():
    model, _ = cut_by_torch()
    return torch.ones(2, 32) @ model[0].weight.t()

with expect(RankFailed):
    run(mixed, world_size=2)

# %% id="14-9b4db5"
def converted():
    model, mesh = cut_by_torch()
    x = DTensor.from_local(torch.ones(2, 32), mesh, [Replicate()])
    return tuple((x @ model[0].weight.t()).to_local().shape)

print("mended:", run(converted, world_size=2).results)

# %% [markdown] id="14-57569a"
# PyTorch also has `loss_parallel`, the cross-entropy over a cut vocabulary, and `context_parallel`, which divides a sequence, on GPUs.
#
# ## Roads not taken
#
# * **Types for gradients.** [spmd_types](https://github.com/meta-pytorch/spmd_types) gives tensors types that say whether a gradient still awaits a sum, and finds a missing f before anything runs.
# * **Sequence parallelism.** Between the layers each rank keeps some rows: g becomes a reduce_scatter and f an all_gather. The bytes are the same.
#
# ## What you can do now
#
# * ☑ find a wrong gradient that the loss does not show, and name it;
# * ☑ cut an MLP, heads and a vocabulary, and say where ranks talk;
# * ☑ write f and g, and tell whether a collective's backward sums;
# * ☑ compute attention block by block, round a ring;
# * ☑ choose a layout that gives all ranks the same work;
# * ☑ say from times why tensor parallelism stays inside a node;
# * ☑ use `parallelize_module`, and mend a mixture of tensors.
#
# **Next:** [lesson 15](15_pipeline.ipynb) cuts a model across its layers.
#
# ## Sources
#
# * M. Shoeybi and others, *Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism*, 2019, [arXiv:1909.08053](https://arxiv.org/abs/1909.08053)
# * H. Liu and others, *Ring Attention with Blockwise Transformers for Near-Infinite Context*, 2023, [arXiv:2310.01889](https://arxiv.org/abs/2310.01889)
# * T. Dao and others, *FlashAttention*, 2022, [arXiv:2205.14135](https://arxiv.org/abs/2205.14135)
# * PyTorch 2.15: [Tensor Parallelism](https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html) · [DTensor](https://docs.pytorch.org/docs/stable/distributed.tensor.html)
# * Mistakes and questions of others: [Megatron-LM#559](https://github.com/NVIDIA/Megatron-LM/issues/559) (why g does not sum again), [Megatron-LM#1446](https://github.com/NVIDIA/Megatron-LM/issues/1446), [nanotron#46](https://github.com/huggingface/nanotron/issues/46) (a row-parallel layer's gradient)
