# %% [markdown] id="16-aae4ab"
# # Send each token to its weights
#
# **Let a router choose who computes, carry tokens to experts on other ranks and back, and keep the experts evenly busy.**
#
# ![Two steps of a layer of experts on eight ranks: in the first all compute equally long, in the second seven ranks wait for rank 0](../../figures/16_experts.png)
#
# *Where this goes: one layer on eight modelled ranks, twice, with equally many tokens. First the experts are equally popular. Then rank 0 has one that gets four times its share, and everybody waits for that rank.*
#
# | | |
# |---|---|
# | **Do** | route tokens by hand; write a layer of experts over ranks, forward and backward; find a gradient that is n times too large; draw, simulate and predict what a popular expert costs; place experts; balance them by a loss |
# | **Learn** | router, dispatch, compute, combine; what an exchange of unknown sizes needs; which losses are in an expert's gradient; what capacity drops; why a balancing loss has to count the tokens of all ranks |
# | **Need** | lessons [08](08_groups.ipynb) (all_to_all and meshes) and [14](14_tensor_parallel.ipynb) (a gradient through a collective) |
# | **Time** | about 65 minutes with the required exercise, 100 with the optional ones as well |
#
# ## Two experts by hand
#
# A larger MLP knows more, and costs more for each token. A *mixture of experts* separates the two. It has E MLPs, the *experts*, and a *router*: a small matrix with a row for each expert. For each token the router computes a probability for each expert, and only the k most probable experts compute it. So a layer can have 64 experts, while each token pays for two.
#
# Here a *token* is a row of numbers that stands for a piece of text. (In earlier lessons a token was a message without content.) The cell has six tokens, two experts and k = 1, in four moves. The *router* chooses. *Dispatch* sorts the tokens by expert. Each expert *computes* its rows. *Combine* puts the rows back, each times its probability.

# %% id="16-d8cd49"
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F
from course_lib import (Mismatch, Network, check, compare_gradients, compute, draw, expect, run,
                        simulate)

# %% id="16-c0004f"
def expert(rows, a, b):
    return F.silu(rows @ a.T) @ b.T

torch.manual_seed(0)
x, router, w1, w2 = (torch.randn(s) for s in ((6, 4), (2, 4), (2, 8, 4), (2, 4, 8)))

p = (x @ router.T).softmax(1)  # router
weight, chosen = p.max(1)
order = chosen.argsort(stable=True)  # dispatch
counts = chosen.bincount(minlength=2).tolist()
parts = [expert(rows, w1[e], w2[e]) for e, rows in enumerate(x[order].split(counts))]  # compute
y = torch.empty_like(x)
y[order] = weight[order, None] * torch.cat(parts)  # combine

print("chosen:", chosen.tolist(), "  order:", order.tolist(), "  rows of each expert:", counts)
one_by_one = [p[i, e] * expert(x[i], w1[e], w2[e]) for i, e in enumerate(chosen)]
assert torch.allclose(y, torch.stack(one_by_one), atol=1e-6)

# %% [markdown] id="16-ed6ebc"
# The choice itself has no gradient: a small change of the router changes no choice. The router learns through the *weight* of each result. With k = 2 or more, the k weights of a token are usually divided by their sum. With k = 1 that would make every weight 1, and the router would learn nothing. So Switch (2021), which has k = 1, keeps p as it is, and so does the cell.
#
# ## There and back
#
# Now the experts live on different ranks, as one rank cannot hold them all. This is *expert parallelism*. Each rank has its own tokens, as in data parallelism, and sends each of them to the rank of its expert. That is the all_to_all of lesson 08, with one difference: **nobody knows the sizes before the routers have chosen.** Rank 1 cannot make room for rows of rank 0 when only rank 0 knows how many there are. So the ranks exchange the counts first, then the rows. The way back needs no counts of its own: its sizes are those of the way there, with the two lists swapped.
#
# In the cell, four ranks have a few tokens each, and expert e lives on rank e. A token carries only the number of its expert, and that is also its colour in the picture: {1} is a token for expert 1.

# %% id="16-b2c335"
CHOSEN = [[1, 0, 2, 1], [1, 3, 1], [3, 0, 2, 1, 1], [2, 1]]  # by rank, each token's expert

def there_and_back():
    mine = torch.tensor(CHOSEN[dist.get_rank()])
    gives = mine.bincount(minlength=dist.get_world_size())
    takes = torch.empty_like(gives)
    dist.all_to_all_single(takes, gives)  # how many
    gives, takes, order = gives.tolist(), takes.tolist(), mine.argsort(stable=True)
    there = mine.new_empty(sum(takes))
    dist.all_to_all_single(there, mine[order], takes, gives)  # the rows
    back = torch.empty_like(mine)
    dist.all_to_all_single(back, there, gives, takes)
    again = torch.empty_like(mine)
    again[order] = back
    return [t.tolist() for t in (mine, mine[order], there, back, again)]

# %% id="16-91ec02"
job = run(there_and_back)
films = [[[{e} for e in row] for row in stage] for stage in zip(*job.results, strict=True)]
assert [row[4] for row in job.results] == CHOSEN
assert all({*job.results[rank][2]} == {rank} for rank in range(4))
draw.steps(films, caption="Tokens in the colours of their experts: first as they are; then sorted "
           "by expert; on the ranks of their experts; back, still sorted; and in their old places.")

# %% [markdown] id="16-4acf56"
# Rank 1 ends up with seven of the fourteen rows, and nobody has decided that.
#
# ## Your turn: moe_layer
#
# **Required · 16.1 · difficulty ●●● · about 40 minutes**
#
# **Goal.** The layer over n ranks, differentiable. Each rank has tokens x (T, d); T may differ by rank. The router (E, d) is the same everywhere. Rank r has the E/n experts from number r·E/n on, with w1 (E/n, h, d) and w2 (E/n, d, h). p = softmax(x·routerᵀ). The weights of a token are its k largest p, divided by their sum. Return y = Σ weight · (silu(x·w1ᵀ)·w2ᵀ) for this rank's tokens.
#
# **Gradients** are those of a loss that is a *sum* over the tokens of all ranks. Then the gradients of x and of a rank's own experts are whole. The router's gradient is what this rank's tokens contribute: the caller adds it up over the ranks. A gradient of zero may be None.
#
# **Budget.** A token's row travels once to each expert that it has chosen, and once back; backward may send as much again. Each rank tells the others E counts of 8 bytes, by all_to_all or all_gather, and nobody sends all rows to everybody. *Sturdy* adds ranks without tokens, one rank, many ranks and float64.
#
# <details>
# <summary>Hint: autograd and the exchange</summary>
#
# Autograd does not see torch's plain calls, as lesson 14 has shown. Write an `autograd.Function` that exchanges rows. (On gloo, `dist.all_to_all` wants tensors of one shape; `all_to_all_single` takes sizes.) Its backward is the same exchange, with the two lists of sizes swapped.
#
# </details>
# <details>
# <summary>Hint: several experts on a rank</summary>
#
# Send E counts, not n: one for each expert. Rows arrive sorted by rank, and those of one rank are sorted by expert. So the counts that have arrived say which expert each row is for: see `repeat_interleave`.
#
# </details>

# %% exercise="moe_layer" role="answer" points=14 required=true difficulty=3
def moe_layer(x: Tensor, router: Tensor, w1: Tensor, w2: Tensor, k: int) -> Tensor:
    """The k best experts' results for each of this rank's tokens, weighted and added up.

    x (T, d) are this rank's tokens, router (E, d) is the same everywhere, w1 (E/n, h, d) and
    w2 (E/n, d, h) are this rank's experts. Every rank calls it, forward and backward.
    """
    ### BEGIN SOLUTION
    n, mine = dist.get_world_size(), len(w1)

    class Exchange(torch.autograd.Function):
        @staticmethod
        def forward(ctx, rows, sizes_out, sizes_in):
            ctx.sizes = sizes_out, sizes_in
            arrived = rows.new_empty(sum(sizes_in), rows.shape[1])
            dist.all_to_all_single(arrived, rows.contiguous(), sizes_in, sizes_out)
            return arrived

        @staticmethod
        def backward(ctx, gradient):
            sizes_out, sizes_in = ctx.sizes
            arrived = gradient.new_empty(sum(sizes_out), gradient.shape[1])
            dist.all_to_all_single(arrived, gradient.contiguous(), sizes_out, sizes_in)
            return arrived, None, None

    best, experts = F.softmax(x @ router.t(), 1).topk(k, 1)
    weights = (best / best.sum(1, keepdim=True)).flatten()
    by_expert = experts.flatten().argsort(stable=True)
    told = torch.bincount(experts.flatten(), minlength=n * mine)
    heard = torch.empty_like(told)
    dist.all_to_all_single(heard, told)
    sizes_out, sizes_in = (t.view(n, mine).sum(1).tolist() for t in (told, heard))
    rows = Exchange.apply(x[by_expert // k], sizes_out, sizes_in)
    whose = torch.arange(mine).repeat(n).repeat_interleave(heard)
    results = torch.zeros_like(rows)
    for e in range(mine):
        at = (whose == e).nonzero()[:, 0]
        results = results.index_copy(0, at, F.silu(rows[at] @ w1[e].t()) @ w2[e].t())
    back = Exchange.apply(results, sizes_in, sizes_out)
    shares = weights[by_expert, None] * back
    return torch.zeros_like(x).index_add(0, by_expert // k, shares)
    ### END SOLUTION

# %% exercise="moe_layer" role="try"
def my_rows():
    mine = [w.chunk(dist.get_world_size())[dist.get_rank()] for w in (w1, w2)]
    return moe_layer(x, router, *mine, k=2)

one, two = (run(my_rows, world_size=n).results[0] for n in (1, 2))
print("off by at most", round((one - two).abs().max().item(), 4))

# %% exercise="moe_layer" role="check"
check(moe_layer)

# %% [markdown] id="16-20ad45"
# ## Break it: which losses are in an expert's gradient?
#
# The next cells have four ranks with twelve tokens each, four experts and k = 2. `one_process` lets every expert compute every token and multiplies half of the results by zero; that is slow and hard to get wrong. `layer` is for one expert on each rank, and exchanges rows by a call that autograd sees, one of PyTorch's functional collectives.

# %% id="16-74eb4b"
from torch.distributed import _functional_collectives as functional

torch.manual_seed(1)
TOKENS = torch.randn(4, 12, 16)  # of four ranks
WHOLE = {"router": torch.randn(4, 16), "w1": torch.randn(4, 32, 16) / 4,
         "w2": torch.randn(4, 16, 32) / 6}

def choose(x, router, k=2):
    best, chosen = (x @ router.T).softmax(1).topk(k)
    return best / best.sum(1, keepdim=True), chosen

def one_process(x, router, w1, w2):
    weights, chosen = choose(x, router)
    gate = torch.zeros(len(x), len(w1)).scatter(1, chosen, weights)
    return sum(gate[:, e, None] * expert(x, w1[e], w2[e]) for e in range(len(w1)))

# %% id="16-bb4f75"
def layer(x, router, w1, w2, group):
    weights, chosen = choose(x, router)
    order, gives = chosen.flatten().argsort(stable=True), chosen.flatten().bincount(minlength=4)
    takes = torch.empty_like(gives)
    dist.all_to_all_single(takes, gives, group=group)
    gives, takes = gives.tolist(), takes.tolist()
    there = functional.all_to_all_single_autograd(x[order // 2], takes, gives, group)
    back = functional.all_to_all_single_autograd(expert(there, w1[0], w2[0]), gives, takes, group)
    return (weights[..., None] * back[order.argsort()].view(len(x), 2, -1)).sum(1)

def gradients_of(function, x, parts, *rest):
    parts = {name: t.clone().requires_grad_() for name, t in parts.items()}
    loss = function(x, *parts.values(), *rest).square().mean()
    return dict(zip(parts, torch.autograd.grad(loss, parts.values()), strict=True))

reference = gradients_of(one_process, TOKENS.flatten(0, 1), WHOLE)

# %% [markdown] id="16-990774"
# Now the ranks do what data parallelism does everywhere. Each one takes the *mean* loss of its own batch, and afterwards the ranks average the gradients. They average the gradient of the router, which all ranks have. They do not touch the gradients of experts, because each expert is on one rank.
#
# **Predict.** How many times too large or too small is the gradient of an expert, and the router's?

# %% id="16-bb1437"
guess = None

# %% id="16-54ebc5"
def train_step(divides=False):
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = {name: t if name == "router" else t[rank : rank + 1] for name, t in WHOLE.items()}
    found = gradients_of(layer, TOKENS[rank], mine, dist.group.WORLD)
    dist.all_reduce(found["router"], dist.ReduceOp.AVG)
    if divides:
        found = found | {name: found[name] / n for name in ("w1", "w2")}
    return found

job = run(train_step)
found = compare_gradients(reference, job.results)
print("your guess:", guess)
print(found)
assert [f.kind == "equal" for f in found] == [True, False, False]
assert all("4 times" in f.text for f in found[1:])
assert compare_gradients(reference, run(train_step, True).results)[1].kind == "equal"

# %% [markdown] id="16-da4132"
# The router is right, and each expert's gradient is four times too large. An expert has seen the tokens of all four ranks, and backward has brought it the gradients of all four losses: their *sum* is in it already. Averaging would have divided that sum by four. So divide by n, and send nothing; the last line of the cell asserts that this is right. If the loss is a sum over the tokens of all ranks, as in the exercise, nothing has to be divided.
#
# Adam hides the factor, because it divides a gradient by its own size. Weight decay and clipping do not hide it. The mistake has been made in both directions: twice too large with two ranks in [pytorch#160285](https://github.com/pytorch/pytorch/issues/160285), too large by the number of expert-parallel ranks in [Megatron-LM#5956](https://github.com/NVIDIA/Megatron-LM/pull/5956), and contributions missing in [transformers#48205](https://github.com/huggingface/transformers/pull/48205). [megablocks#86](https://github.com/databricks/megablocks/issues/86) explains the factor. And a norm of all gradients has to count each expert once, on its own rank: [Megatron-LM#5916](https://github.com/NVIDIA/Megatron-LM/pull/5916) had to mend that.
#
# ## Break it: sizes that nobody has told
#
# What if each rank takes as many rows from a peer as it gives to that peer? That works only while any two ranks give each other equally many rows.

# %% id="16-0c34ea"
def without_counts():
    mine = torch.tensor(CHOSEN[dist.get_rank()])
    gives = mine.bincount(minlength=4).tolist()
    dist.all_to_all_single(torch.empty_like(mine), mine.sort().values, gives, gives)

with expect(Mismatch):
    run(without_counts)

# %% [markdown] id="16-59b686"
# ## Loads are never even
#
# Nothing makes a router choose evenly. The cells below play a layer on modelled ranks with one expert each. Every rank sends equally many rows in all, and expert 0 gets `skew` times its fair share. Here are the bytes from rank to rank, for a skew of one and of four.

# %% id="16-b8cc68"
def sizes(skew, n):
    """Rows that a rank gives to each rank: n·(n−1) in all, and skew·(n−1) of them to rank 0."""
    return [skew * (n - 1)] + [n - skew] * (n - 1)

def by_messages(skew):
    rank, n = dist.get_rank(), dist.get_world_size()
    gives, ops = sizes(skew, n), []
    for peer in (peer for peer in range(n) if peer != rank):
        ops += [dist.P2POp(dist.isend, torch.empty(gives[peer], 4), peer),
                dist.P2POp(dist.irecv, torch.empty(gives[rank], 4), peer)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()

even, popular = (simulate(by_messages, skew, world_size=6) for skew in (1, 4))
assert sum(sizes(1, 6)) == sum(sizes(4, 6)) == 6 * 5
draw.traffic(even, popular, titles=["even", "expert 0 is popular"],
             caption="Dispatch: everybody's rows for expert 0 go through one link, to rank 0.")

# %% [markdown] id="16-4fd3b2"
# A step dispatches, computes and combines. The next cell plays both loads one after the other, and the picture shows who computes how long.
#
# The numbers are those of a large layer: 64 GPUs with 50 GB/s each, 64·63 rows of 14,336 bytes on each, and 220 ns of computing for a row. The picture has only eight ranks, each with `c` = 72 times as many rows as `sizes` says, because 72·8·7 = 64·63. Bytes and bandwidth are both divided by 512: the tensors are small, and the times stay the same.

# %% id="16-3c8f0f"
WIDTH, PER_ROW, LINK = 7, 2.2e-7, Network(latency=5e-6, bandwidth=50e9 / 512)
assert 4 * WIDTH * 512 == 14_336

def step(skews, c=1):
    rank, n = dist.get_rank(), dist.get_world_size()
    for skew in skews:
        gives = [c * rows for rows in sizes(skew, n)]
        takes = [gives[rank]] * n
        rows, there = torch.empty(sum(gives), WIDTH), torch.empty(sum(takes), WIDTH)
        dist.all_to_all_single(torch.empty(n, dtype=torch.int64), torch.tensor(gives))
        dist.all_to_all_single(there, rows, takes, gives)
        compute(PER_ROW * len(there))
        dist.all_to_all_single(rows, there, gives, takes)

both = simulate(step, (1, 4), 72, world_size=8, network=LINK)
draw.timeline(both, caption="Two steps with equally many rows: even, and with a popular expert on "
              "rank 0, for which all others wait.")

# %% [markdown] id="16-569af2"
# How long does a step take? An exchange ends when its fullest rank is done. Let that rank have R rows, each of w bytes, and let a row take t seconds to compute. An exchange in which the fullest rank has S bytes takes (n − 1)·α + (n − 1)/n·S·β. There are three: one of 8·n bytes for the counts, and two of R·w bytes. In seconds, the step takes
#
# $$3(n-1)\alpha+\frac{n-1}{n}(2Rw+8n)\beta+Rt$$
#
# R is skew times the fair share, so the time grows with the *largest* load, and the mean does not appear. The cell compares the formula with 64 simulated ranks.

# %% id="16-94eae5"
def predicted(skew, n=64):
    fullest = skew * n * (n - 1)  # rows
    nbytes = 2 * fullest * 4 * WIDTH + 8 * n
    return 3 * (n - 1) * LINK.latency + (n - 1) / n * nbytes / LINK.bandwidth + fullest * PER_ROW

skews = [1, 2, 4, 8]
took = [simulate(step, [skew], world_size=64, network=LINK).seconds for skew in skews]
assert all(abs(t - predicted(skew)) < 1e-9 for t, skew in zip(took, skews, strict=True))
ms = [round(1e3 * t, 1) for t in took]
print({skew: f"{t} ms" for skew, t in zip(skews, ms, strict=True)})
assert 4.8 < took[3] / took[0] < 7
draw.lines({"simulated": (skews, ms), "formula": (skews, [1e3 * predicted(s) for s in skews])},
           "rows of the fullest rank, in fair shares", "ms", formulas=["formula"], exact=True,
           ymin=0, caption="A step on 64 ranks takes as long as the fullest rank needs.")

# %% [markdown] id="16-9f86fa"
# ## Your turn: place_experts
#
# With several experts on a rank, a popular one can share its rank with unpopular ones. So DeepSeek-V3 (2024), when it serves users, moves its experts from rank to rank, by the loads that it has counted.
#
# **Optional · 16.2 · difficulty ●○○ · about 15 minutes**
#
# **Goal.** `loads` has the load of each of E experts, and n divides E. Return a list for each rank with the numbers of its E/n experts. The largest load of a rank must be at most 4/3 of the largest load in the best placement with E/n experts on each rank. (`check` tries all placements.) The same loads must give the same lists in each call, because every rank makes them for itself.
#
# <details>
# <summary>Hint: what goes first</summary>
#
# Place the largest load first: a large one is hard to place late. And the rank with the smallest sum may already have its E/n experts.
#
# </details>

# %% exercise="place_experts" role="answer" points=4 required=false difficulty=1
def place_experts(loads: list[float], n: int) -> list[list[int]]:
    """By rank, the numbers of its len(loads) / n experts, so that no rank has far too much load."""
    ### BEGIN SOLUTION
    room, ranks, totals = len(loads) // n, [[] for _ in range(n)], [0.0] * n
    for e in sorted(range(len(loads)), key=loads.__getitem__, reverse=True):
        emptiest = min((r for r in range(n) if len(ranks[r]) < room), key=totals.__getitem__)
        ranks[emptiest].append(e)
        totals[emptiest] += loads[e]
    return ranks
    ### END SOLUTION

# %% exercise="place_experts" role="check"
check(place_experts)

# %% [markdown] id="16-c19c70"
# ## Capacity, and what is dropped
#
# The first large mixtures set a limit. From each rank an expert takes at most C = ⌈factor·k·T/E⌉ rows, where T counts the tokens of the rank; the factor is called the *capacity factor*. Further rows are *dropped*: their tokens go on without that expert. Then all sizes are known in advance, unused places are padded, and no counts are exchanged. The price is what is dropped. (Guess before you run: what share of the rows is dropped if all experts are equally likely, and the factor is 1? It is not 0.)

# %% id="16-d308b5"
torch.manual_seed(2)
T, E = 1024, 64
scores = {"equally likely": torch.zeros(E), "some are popular": torch.randn(E)}
factors = [1, 1.25, 1.5, 2, 4]

def dropped(likely, factor):
    chosen = (likely + torch.distributions.Gumbel(0, 1).sample((T, E))).topk(2).indices
    rows = chosen.flatten().bincount(minlength=E)
    return 1 - rows.clamp(max=int(-(-factor * 2 * T // E))).sum().item() / (2 * T)

lost = {name: [round(dropped(likely, f), 3) for f in factors] for name, likely in scores.items()}
print(lost)
assert round(lost["equally likely"][0], 2) == 0.08 < 0.09 < lost["some are popular"][-1]
draw.lines({name: (factors, row) for name, row in lost.items()}, "capacity factor", "dropped",
           ymin=0, exact=True, caption="Share of rows that are dropped: with a factor of 1 chance "
           "alone drops some, and a router with favourites drops a tenth even with 4.")

# %% [markdown] id="16-04053d"
# With equally likely experts chance alone drops 8%. DeepSeek-V3 drops nothing, and balances the router instead.
#
# ## The balancing loss, of all tokens
#
# The *balancing loss* is added to the training loss with a small factor:
#
# $$L = E\sum_e f_eP_e$$
#
# Here $f_e$ is the share of all choices that fell on expert e, and $P_e$ is the mean probability of e. L is 1 if all is even, and larger if the router prefers some experts. f counts choices and has no gradient; P has one, and it pushes probability away from full experts.
#
# Whose tokens should this loss count? In the cell two ranks have different kinds of text. The router sends one kind to experts 0 and 1, the other to 2 and 3. The experts have specialised, as they should, and all have the same amount of work. We compute the loss of each rank's own tokens, and the loss of all tokens.

# %% id="16-62dd79"
def balance(p):
    chosen = p.topk(2).indices
    share = chosen.flatten().bincount(minlength=p.shape[1]) / chosen.numel()
    return p.shape[1] * (share * p.mean(0)).sum()

# %% id="16-647108"
kinds = torch.tensor([[4.0, 4, 0, 0], [0, 0, 4, 4]])
ps = [(kind + torch.randn(100, 4)).softmax(1) for kind in kinds]
of_each, of_all = [balance(p).item() for p in ps], balance(torch.cat(ps)).item()
print("of each rank:", [round(loss, 2) for loss in of_each], "  of all:", round(of_all, 2))
assert min(of_each) > 1.8 and abs(of_all - 1) < 0.01

# %% [markdown] id="16-85c8e3"
# The mean of the ranks' own losses would force each rank to use all experts evenly, and the experts would no longer specialise. Only the loss of all tokens shows that no expert is full. The smaller the batches are, the more the two differ. Qiu and others (2025) compare them in training.
#
# ## Your turn: balance_loss
#
# **Optional · 16.3 · difficulty ●●○ · about 20 minutes**
#
# **Goal.** The balancing loss of the tokens of all ranks, the same on every rank. p (T, E) are this rank's probabilities, `chosen` (T, k) its choices, which are not always the largest p; T may differ by rank. Although every rank returns the loss, it counts once: the gradient of p is that of one process that has all tokens. **Budget.** One all_reduce of 2·E numbers and a count, each of at most 8 bytes, and no call in backward. *Sturdy* adds ranks without tokens, one rank, many ranks and float64.
#
# <details>
# <summary>Hint: a value from all, a gradient from here</summary>
#
# The all_reduce gives the numbers. The gradient of this rank's p needs only f and the number of all tokens. `own + (whole - own).detach()` has the value of `whole` and the gradient of `own`.
#
# </details>

# %% exercise="balance_loss" role="answer" points=6 required=false difficulty=2
def balance_loss(p: Tensor, chosen: Tensor) -> Tensor:
    """E · Σ f·P over the tokens of all ranks, the same on every rank.

    p (T, E) are this rank's probabilities, chosen (T, k) int64 its choices. Every rank calls it.
    """
    ### BEGIN SOLUTION
    experts = p.shape[1]
    hits = chosen.flatten().bincount(minlength=experts)
    sums = torch.cat([hits.to(p.dtype), p.detach().sum(0), p.new_tensor([len(p)])])
    dist.all_reduce(sums)
    hits, mass, tokens = sums[:experts], sums[experts:-1], sums[-1]
    slope = experts * hits / (hits.sum() * tokens)
    own, whole = (slope * p.sum(0)).sum(), (slope * mass).sum()
    return own + (whole - own).detach()
    ### END SOLUTION

# %% exercise="balance_loss" role="check"
check(balance_loss)

# %% [markdown] id="16-5bd084"
# **Without a loss.** DeepSeek-V3 adds to each expert's score a *bias* that counts only when experts are chosen, not in the weights. After each step the bias of a full expert goes down a little, and that of an empty one goes up. The counts are those of all ranks. A balancing loss remains, and is very small.
#
# ## Experts as one more dimension of the mesh
#
# Eight ranks can hold four experts twice. A mesh says so: a row is a set of all experts, and the ranks of a row exchange tokens; a column holds the copies of one expert. Each gradient is summed over the ranks that have a copy of its parameter: the router's over all ranks, an expert's over its column. Every sum is divided by the number of losses, here eight.

# %% id="16-df91b7"
from torch.distributed.device_mesh import init_device_mesh

def on_a_mesh():
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("copy", "expert"))
    e = mesh.get_local_rank("expert")
    tokens = TOKENS.flatten(0, 1).chunk(8)[dist.get_rank()]
    mine = {name: t if name == "router" else t[e : e + 1] for name, t in WHOLE.items()}
    found = gradients_of(layer, tokens, mine, mesh.get_group("expert"))
    for name, gradient in found.items():
        dist.all_reduce(gradient, group=None if name == "router" else mesh.get_group("copy"))
        gradient /= 8
    return found

job = simulate(on_a_mesh, world_size=8)
found = compare_gradients(reference, job.results)
print(found)
assert all(f.kind == "equal" for f in found)
draw.mesh(job, (2, 4), caption="Rows exchange tokens, columns add up the gradients of an expert's "
          "copies. (The router's all_reduce, among all ranks, is not drawn.)")

# %% [markdown] id="16-d29342"
# Each row has four exchanges: one of counts, one there, one back, and one in backward; a fifth would bring the tokens' own gradient, which nobody has asked for.
#
# Tensor and pipeline parallelism are further dimensions of the same mesh. Frameworks fold them: the ranks that cut attention into heads may be those that hold different experts, because attention and experts are different layers.
#
# ## Bytes: cut the layer, or spread its experts?
#
# Tensor parallelism (lesson 14) can cut each expert into n parts. Then all ranks have the same B tokens, and one all_reduce adds up B·d numbers. With expert parallelism each rank has its own B/n tokens, and exchanges k·B/n rows twice. A rank sends 2(n − 1)/n of an all_reduce's bytes, and (n − 1)/n of an all_to_all's. So expert parallelism sends k/n of what tensor parallelism does. The cell counts it for n = 8 and k = 2, in forward.

# %% id="16-5c2f9a"
B, d, n = 4096, 16, 8

def tensor_parallel():
    dist.all_reduce(torch.empty(B, d))

def expert_parallel(k=2):
    rows = torch.empty(k * B // n, d)  # even loads
    for _ in range(2):
        dist.all_to_all_single(torch.empty_like(rows), rows)

def sent(job):
    ways = {"all_reduce": 2, "all_to_all_single": 1}
    return sum(ways[e.op] * (n - 1) / n * e.nbytes for e in job.trace.of(0))

by_cut, by_expert = (sent(simulate(f, world_size=n)) for f in (tensor_parallel, expert_parallel))
assert by_cut / by_expert == n / 2
draw.bars({"tensor parallel": by_cut / 1e3, "expert parallel": by_expert / 1e3}, "kB", exact=True,
          caption="What a rank sends for the same layer and the same tokens: eight ranks, forward, "
          "k = 2.")

# %% [markdown] id="16-b21530"
# That is why experts cross nodes and cut layers do not. The price is what this lesson has shown: sizes that nobody knows in advance, and loads that are not even.
#
# ## In practice
#
# * **NCCL.** An exchange with sizes is a [group of sends and receives](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html). `all_to_all_single` takes the sizes as Python lists, so `tolist()` makes the host wait for the GPU in every layer.
# * **Sizes that stay on the GPU.** PyTorch 2.15 has `torch.ops.symm_mem.all_to_all_vdev`, an exchange through *symmetric memory*, which every GPU of the group can address. It takes the sizes as a tensor on the GPU, and writes into another one how much has arrived.
# * **[DeepEP](https://github.com/deepseek-ai/DeepEP)** has kernels for dispatch and combine, also in 8 bits. Its backward is like ours: the backward of dispatch is a combine, and that of combine is a dispatch.
# * **[Megatron-Core](https://github.com/NVIDIA/Megatron-LM/tree/main/megatron/core/transformer/moe)** has three token dispatchers: `allgather` (all rows to all ranks), `alltoall` (this lesson) and `flex` (DeepEP). It computes all experts of a rank in one *grouped* matrix product.
#
# ## Roads not taken
#
# * **Experts choose tokens.** Each expert takes its best C tokens, so loads are even by construction. But whether a token is taken then depends on tokens that come later.
# * **Shared experts.** One more expert, with a copy on every rank, computes all tokens while rows travel to the others.
#
# ## What you can do now
#
# * ☑ route tokens by hand: router, dispatch, compute, combine;
# * ☑ write a layer of experts over ranks, forward and backward;
# * ☑ find a gradient that is n times too large, and say why;
# * ☑ draw, simulate and predict what a popular expert costs;
# * ☑ place experts, and say what capacity drops;
# * ☑ balance experts by the loss of all tokens.
#
# **Next:** [lesson 17](17_capstone.ipynb) plans a whole training run. [Lesson 14](14_tensor_parallel.ipynb) complements this one: cut what every token needs, and spread what few tokens need.
#
# ## Sources
#
# * D. Lepikhin and others, *GShard*, 2020, [arXiv:2006.16668](https://arxiv.org/abs/2006.16668) (experts over devices, capacity, top 2)
# * W. Fedus and others, *Switch Transformers*, 2021, [arXiv:2101.03961](https://arxiv.org/abs/2101.03961) (the balancing loss; k = 1)
# * DeepSeek-AI, *DeepSeek-V3 Technical Report*, 2024, [arXiv:2412.19437](https://arxiv.org/abs/2412.19437) (bias in place of a loss)
# * Z. Qiu and others, *Demons in the Detail: On Implementing Load Balancing Loss for Training Specialized Mixture-of-Expert Models*, 2025, [arXiv:2501.11873](https://arxiv.org/abs/2501.11873)
# * Y. Zhou and others, *Mixture-of-Experts with Expert Choice Routing*, 2022, [arXiv:2202.09368](https://arxiv.org/abs/2202.09368)
# * PyTorch 2.15: [all_to_all_single](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_to_all_single)
# * Mistakes and questions of others: those that *Break it* names
