# %% [markdown] id="15-76b552"
# # Pass it on
#
# **Cut a model across its layers, give each rank a stage, and keep all stages busy.**
#
# ![Four stages and eight micro-batches, GPipe above 1F1B: both take equally long, with the same idle time at the start and at the end](../../figures/15_pipeline.png)
#
# *Where this goes: two schedules of one training step on four stages. Both take equally long. Above, every stage holds eight micro-batches at once; below, at most four.*
#
# | | |
# |---|---|
# | **Do** | cut a network in two by hand; write GPipe and 1F1B; play four schedules from their lists, and step six of PyTorch's; read three hangs that only pipelines have; combine two pipelines with data parallelism |
# | **Learn** | what autograd needs where a model is cut; why stages idle, and how much; what a schedule holds in memory; what interleaving and zero bubble buy |
# | **Need** | lessons [01](01_point_to_point.ipynb) (send and receive), [07](07_gpus.ipynb) (batches on NCCL) and [08](08_groups.ipynb) (meshes) |
# | **Time** | about 70 minutes with the required exercise, 120 with the optional ones as well |
#
# ## Two stages by hand
#
# Tensor parallelism cuts every layer. *Pipeline parallelism* cuts between layers: the first ranks have the first layers, the last ranks have the last ones. Such a part is a *stage*. Only activations travel between stages, and in backward their gradients. That is little compared with what tensor parallelism adds up in every layer, so pipelines can run across nodes.
#
# Below is a network of four equal parts, with a batch that is divided into eight *micro-batches* of four rows. One process computes the gradient of the mean loss. That is our *reference*.

# %% id="15-3f8b6c"
import logging
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from course_lib import (Deadlock, Network, check, compare_gradients, compute, draw, expect, run,
                        simulate, span)

SHAPE, M = (4, 16), 8  # of an activation; micro-batches

def network():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)))

torch.manual_seed(1)
inputs, targets = torch.randn(2, M, *SHAPE).unbind()
whole = network()
losses = [F.mse_loss(whole(x), t) for x, t in zip(inputs, targets, strict=True)]
(sum(losses) / M).backward()
reference = {name: p.grad for name, p in whole.named_parameters()}

# %% [markdown] id="15-d576bc"
# How does a gradient cross the cut? Autograd sees one process only: what arrives is a tensor without history. So the second stage makes it a *leaf* that has `requires_grad`. After the second stage's `backward()`, the leaf's `.grad` is what the first stage needs. On the first stage `y.backward(leaf.grad)` goes on from there; y is the output that was sent. In the cell one process plays both stages.

# %% id="15-c2564d"
again = network()
first, second = again[:2], again[2:]
for x, t in zip(inputs, targets, strict=True):
    y = first(x)
    leaf = y.detach().requires_grad_()  # on another rank: what was received
    (F.mse_loss(second(leaf), t) / M).backward()
    y.backward(leaf.grad)  # on the first rank: the gradient that came back

by_hand = {name: p.grad for name, p in again.named_parameters()}
print(compare_gradients(reference, [by_hand]))
assert all(torch.allclose(by_hand[name], g, atol=1e-6) for name, g in reference.items())

# %% [markdown] id="15-78705e"
# ## Why one waits for the other
#
# To predict times, a skeleton of a pipeline is enough: it computes for as long as a stage would, and sends messages without content. On each stage, forward takes F = 1 ms and backward B = 2 ms. A *schedule* has a list for each rank: what the rank does, in order. There `(stage, "F", i)` is the forward pass of micro-batch i. `home` says on which rank each stage lives. Each message has a tag of its own, and nobody waits to send. (`I` and `W` come later, in *Zero bubble*.)
#
# **Predict.** There are four stages, and the batch is not divided: each stage makes one forward and one backward. For what share of the time is a stage idle?

# %% id="15-fea0bb"
guess = None

# %% id="15-20d661"
SECONDS = {"F": 1e-3, "B": 2e-3, "I": 1e-3, "W": 1e-3}
FREE = Network(latency=1e-12, bandwidth=1e24)  # messages take no time

def play(orders, home, v=1):
    rank, works = dist.get_rank(), []
    def is_far(stage):
        return 0 <= stage < len(home) and home[stage] != rank
    for stage, kind, i in orders[rank]:
        source, target = (stage - 1, stage + 1) if kind == "F" else (stage + 1, stage - 1)
        if kind != "W" and is_far(source):
            dist.recv(torch.empty(1), home[source], tag=100 * stage + 2 * i + (kind == "F"))
        with span(f"{kind}{i}"):
            compute(SECONDS[kind] / v)
        if kind != "W" and is_far(target):
            tag = 100 * target + 2 * i + (kind == "F")
            works.append(dist.isend(torch.empty(1), home[target], tag=tag))
    for work in works:
        work.wait()

def played(orders, home=range(4), v=1):
    return simulate(play, orders, home, v, world_size=4, network=FREE, buffered=True)

# %% id="15-9a468e"
naive = played([[(rank, "F", 0), (rank, "B", 0)] for rank in range(4)])
idle = 1 - (1e-3 + 2e-3) / naive.seconds
print("your guess:", guess, f"  idle: {idle:.0%}")
assert abs(idle - 0.75) < 1e-6
draw.timeline(naive, caption="One batch, four stages: at any time a single rank computes.")

# %% [markdown] id="15-fc6f12"
# Four ranks are as fast as one. Each has a quarter of the model, which is what we wanted, but it waits for 75% of the time.
#
# ## GPipe
#
# So divide the batch into m micro-batches. While stage 1 works on the first, stage 0 can begin the second. **GPipe** sends all of them forward, then all of them backward. The gradients add up in `.grad`. Each loss is a mean over its micro-batch. So divide each loss by m: then the step is the same as that of the whole batch.
#
# With n stages, each works for m·(F + B). The last stage begins (n − 1)·F late. When it has ended, its last gradient passes through the n − 1 stages before it, which takes (n − 1)·B. So a step takes (m + n − 1)·(F + B), and a stage idles for a share of (n − 1)/(m + n − 1). That share is called the *bubble*. Compute before you run the cell: how long is a step of four stages and eight micro-batches?

# %% id="15-ce7f50"
gpipe = [[(rank, kind, i) for kind in "FB" for i in range(M)] for rank in range(4)]
step = played(gpipe)
print(f"{1e3 * step.seconds:.1f} ms, bubble {1 - M * 3e-3 / step.seconds:.0%}")
assert abs(step.seconds - (M + 4 - 1) * 3e-3) < 1e-9
draw.timeline(step, caption="GPipe, four stages, eight micro-batches: light is forward, dark is "
              "backward, and the bubble is what is hatched, and what is empty at the end.")

# %% [markdown] id="15-ab46a9"
# ## Your turn: pipeline_step
#
# **Required · 15.1 · difficulty ●●○ · about 30 minutes**
#
# **Goal.** Write one step of a pipeline, in GPipe's order. Rank r has stage r. Rank 0 has `inputs` and the last rank has `targets`, each a list of m tensors; elsewhere they are None. What goes from stage to stage is float32 and has `shape`. `loss(output, target)` is a mean. Leave in the `.grad` of the stage's parameters, which is None before, the gradient of the mean over all micro-batches. Return that mean loss as a number on the last rank, and None on the others. m may be less than n.
#
# **Budget.** Two messages for each micro-batch and boundary, between neighbours, by send and receive alone. In the simulator, where each stage computes for F and B, a step may take (m + n − 1)·(F + B), plus the time of 4·(m + n) messages one after another. *Sturdy* adds one rank, many ranks, late messages, and whole numbers as inputs.
#
# <details>
# <summary>Hint: what a stage keeps</summary>
#
# It keeps the input and the output of each micro-batch. Autograd keeps the input tensor itself, and no copy of it. So give each micro-batch a tensor of its own.
#
# </details>
# <details>
# <summary>Hint: nobody should wait to send</summary>
#
# `isend` returns at once. Keep the Works, and wait for each of them **once**, at the end: on gloo, a second `wait()` for a message never returns.
#
# </details>

# %% exercise="pipeline_step" role="answer" points=12 required=true difficulty=2
def pipeline_step(stage: nn.Module, inputs: list[Tensor] | None, targets: list[Tensor] | None,
                  m: int, shape: tuple, loss: Callable) -> float | None:
    """One step of a pipeline; rank r has stage r. inputs are rank 0's, targets the last rank's.

    Leaves in .grad the gradient of the mean loss, which the last rank returns, the others None."""
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    is_last, kept, sent, total = rank == n - 1, [], [], 0.0
    for i in range(m):
        if rank == 0:
            x = inputs[i]
        else:
            x = torch.empty(shape)
            dist.recv(x, rank - 1)
            x.requires_grad_()
        y = stage(x)
        kept.append((x, y))
        if not is_last:
            sent.append(dist.isend(y.detach(), rank + 1))
    for i, (x, y) in enumerate(kept):
        gradient = None
        if is_last:
            y = loss(y, targets[i]) / m
            total += y.item()
        else:
            gradient = torch.empty(shape)
            dist.recv(gradient, rank + 1)
        y.backward(gradient)
        if rank > 0:
            sent.append(dist.isend(x.grad, rank - 1))
    for work in sent:
        work.wait()
    return total if is_last else None
    ### END SOLUTION

# %% exercise="pipeline_step" role="try"
def my_step():
    rank, n = dist.get_rank(), dist.get_world_size()
    stage = network()[rank : rank + 1]
    pipeline_step(stage, [*inputs] if rank == 0 else None, [*targets] if rank == n - 1 else None,
                  M, SHAPE, F.mse_loss)
    return {name: p.grad for name, p in stage.named_parameters()}

compare_gradients(reference, run(my_step, world_size=4))

# %% exercise="pipeline_step" role="check"
check(pipeline_step)

# %% [markdown] id="15-182715"
# ## What a stage holds: 1F1B
#
# From the forward pass of a micro-batch to its backward pass, a stage keeps its activations. We call such a micro-batch *alive*. With GPipe all m are alive at once: more micro-batches make the bubble smaller, and cost memory.
#
# **1F1B** (one forward, one backward) has the same bubble and holds less. (Guess before you run the cell: how many micro-batches are alive on rank 0, and on rank 3?) Rank r begins with min(m, n − r) forwards, one for each stage from its own to the last, and then waits for its first gradient. From then on backwards and forwards take turns: each backward frees a place for the next forward. At the end the rank makes the backwards that are left. Now at most n micro-batches are alive, however large m is.

# %% id="15-b570d3"
def one_after_one(n, m):
    orders = []
    for rank in range(n):
        first = min(m, n - rank)
        kinds = "F" * first + "BF" * (m - first) + "B" * first
        orders.append([(rank, kind, kinds[:k].count(kind)) for k, kind in enumerate(kinds)])
    return orders

def most_alive(order):
    kinds = [kind for _, kind, _ in order]
    return max(kinds[:k].count("F") - kinds[:k].count("B") for k in range(len(kinds) + 1))

ours = played(one_after_one(4, M))
alive = {"GPipe": [*map(most_alive, gpipe)], "1F1B": [*map(most_alive, one_after_one(4, M))]}
print(alive)
assert alive["1F1B"] == [4, 3, 2, 1] and abs(ours.seconds - step.seconds) < 1e-9
draw.timeline(ours, caption="1F1B: the same time as GPipe, and rank r never holds more than four "
              "minus r micro-batches.")

# %% [markdown] id="15-a46fe7"
# ## Your turn: one_f_one_b
#
# **Optional · 15.2 · difficulty ●●● · about 40 minutes**
#
# **Goal.** Write the same function in 1F1B order. It has to run on NCCL, too. **Budget.** As before; and on rank r at most min(m, n − r) micro-batches are alive.
#
# On NCCL the calls of a group run one after another. In the middle of 1F1B, one of two neighbours sends an activation while the other sends a gradient: if each calls send before its receive, both wait. `dist.batch_isend_irecv` starts them together: it takes a list of `dist.P2POp(dist.isend, tensor, peer)` and `dist.P2POp(dist.irecv, inbox, peer)`, and returns Works.
#
# <details>
# <summary>Hint: which two calls belong together?</summary>
#
# In the middle part, after a forward, send the output to the next rank, and receive a gradient from it. After a backward, send the gradient to the previous rank, and receive an input from it, if there is one more.
#
# </details>
# <details>
# <summary>Hint: where does the middle part begin?</summary>
#
# Rank r begins with min(m, n − r) forwards. A backward follows the last of them, so that forward belongs to the middle part. At most n − r − 1 forwards come before the middle part, and as many backwards after it. On the last rank nothing comes before.
#
# </details>

# %% exercise="one_f_one_b" role="answer" points=10 required=false difficulty=3
def one_f_one_b(stage: nn.Module, inputs: list[Tensor] | None, targets: list[Tensor] | None,
                m: int, shape: tuple, loss: Callable) -> float | None:
    """What pipeline_step does, with at most min(m, n - rank) micro-batches alive. Runs on NCCL."""
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    is_last, kept, sent, total = rank == n - 1, [], [], 0.0

    def talk(peer, send=None, receives=False):
        """Send a tensor to a neighbour, receive one from it, or both at once."""
        if not 0 <= peer < n:
            return None
        inbox = torch.empty(shape)
        ops = [dist.P2POp(dist.isend, send, peer)] if send is not None else []
        if receives:
            ops.append(dist.P2POp(dist.irecv, inbox, peer))
        works = dist.batch_isend_irecv(ops) if ops else []
        if receives:
            [work.wait() for work in works]
        else:
            sent.extend(works)
        return inbox

    def forward(i, x):
        x = inputs[i] if rank == 0 else x.requires_grad_()
        y = stage(x)
        if is_last:
            y = loss(y, targets[i]) / m
        kept.append((x, y))
        return y

    def backward(gradient):
        x, y = kept.pop(0)
        y.backward(gradient)
        return x.grad

    warm_up = min(m, n - 1 - rank)
    for i in range(warm_up):
        talk(rank + 1, send=forward(i, talk(rank - 1, receives=True)).detach())
    x = talk(rank - 1, receives=True) if warm_up < m else None
    for i in range(warm_up, m):
        y = forward(i, x)
        total += y.item() if is_last else 0.0
        gradient = talk(rank + 1, send=y.detach(), receives=True)
        x = talk(rank - 1, send=backward(gradient), receives=i < m - 1)
    for _ in range(warm_up):
        talk(rank - 1, send=backward(talk(rank + 1, receives=True)))
    [work.wait() for work in sent]
    return total if is_last else None
    ### END SOLUTION

# %% exercise="one_f_one_b" role="check"
check(one_f_one_b)

# %% [markdown] id="15-100eae"
# ## Interleaving
#
# Fewer layers on a stage would fill the pipeline sooner. *Interleaving* gives each rank v thin stages instead of a thick one: with four ranks and v = 2, rank 0 has stages 0 and 4. A thin stage takes 1/v of the time. So the idle time at both ends is 1/v as long, while the work stays the same. The price is v times as many messages, and more micro-batches alive.
#
# Writing down the order is harder. PyTorch can do it for us: `get_schedule_ops` lists what each rank does, and our skeleton plays it. (The cell prints how many pairs of thin stage and micro-batch are alive at most, by rank.)

# %% id="15-26e4fc"
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

KINDS = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}

def orders_of(name, n=4, m=M, v=2):
    rows = [[part for op in row if op for part in op.sub_actions or [op]]
            for row in get_schedule_ops(name, n, m, v)]
    return [[(op.stage_index, KINDS[op.computation_type.name], op.microbatch_index)
             for op in row if op.computation_type.name in KINDS] for row in rows]

LOOP, VEE = [0, 1, 2, 3] * 2, [0, 1, 2, 3, 3, 2, 1, 0]  # two ways to house eight stages
interleaved = played(orders_of("Interleaved1F1B"), LOOP, 2)
thin = [*map(most_alive, orders_of("Interleaved1F1B"))]
print(f"{1e3 * interleaved.seconds:.1f} ms,", thin)
assert abs(interleaved.seconds - 28.5e-3) < 1e-6 and thin[0] / 2 == 5.5
draw.timeline(interleaved, caption="Interleaved 1F1B with two thin stages per rank: each idles "
              "half as long as in 1F1B.")

# %% [markdown] id="15-fe44ef"
# A thin stage keeps half as much as a thick one. So eleven alive on rank 0 take as much memory as 5.5 micro-batches in 1F1B.
#
# ## Your turn: bubble
#
# **Optional · 15.3 · difficulty ●○○ · about 10 minutes**
#
# **Goal.** Return the share of a rank's time that is idle, with n ranks, m micro-batches and v stages on each rank. Careful: some papers divide the idle time by the *working* time. Here it is divided by the whole time. (The cell after the check draws this share, from schedules that are played.)
#
# <details>
# <summary>Hint: the unit</summary>
#
# Let a thin stage's forward and backward together be one unit of time. For how many units does a rank work, and for how many does it wait?
#
# </details>

# %% exercise="bubble" role="answer" points=4 required=false difficulty=1
def bubble(n: int, m: int, v: int = 1) -> float:
    """Idle share of a stage's time: n ranks, m micro-batches, v stages on each rank."""
    ### BEGIN SOLUTION
    return (n - 1) / (v * m + n - 1)
    ### END SOLUTION

# %% exercise="bubble" role="check"
check(bubble)

# %% id="15-e1bf72"
many = [4, 8, 16, 32]

def idle_share(job, m):
    return 1 - m * 3e-3 / job.seconds

shares = {"1F1B": [idle_share(played(one_after_one(4, m)), m) for m in many],
          "interleaved, v = 2": [idle_share(played(orders_of("Interleaved1F1B", m=m), LOOP, 2), m)
                                 for m in many]}
for v, row in zip((1, 2), shares.values(), strict=True):
    assert all(abs(x - 3 / (v * m + 3)) < 1e-6 for x, m in zip(row, many, strict=True))
draw.lines({name: (many, row) for name, row in shares.items()}, "micro-batches", "bubble",
           exact=True, caption="Four ranks: the bubble shrinks with more micro-batches, and with "
           "two stages on each rank it comes close to half.")

# %% [markdown] id="15-bce095"
# ## Zero bubble
#
# Backward does two things: it computes the gradient of the stage's *input*, for which the previous stage waits, and those of its *weights*, for which nobody waits before the optimizer's step. So cut backward in two: I for the input, then W for the weights. Send the result of I at once, and let W fill the gaps. Guess first: a step was 33 ms with 1F1B and 28.5 ms with interleaving. How long is it now?
#
# Autograd can do that. The cell takes one layer and asks for the input's gradient first, then for those of the weights, from the same graph. The next one plays PyTorch's schedule.

# %% id="15-a3d275"
x, layer = inputs[0].clone().requires_grad_(), network()[0]
y, whose = layer(x).sum(), [x, *layer.parameters()]
[for_neighbour] = torch.autograd.grad(y, x, retain_graph=True)  # I: send it now
for_optimizer = torch.autograd.grad(y, whose[1:])  # W: whenever there is time
layer(x).sum().backward()  # B: both at once
assert all(map(torch.equal, [for_neighbour, *for_optimizer], [t.grad for t in whose]))

# %% id="15-ae64d8"
zero = played(orders_of("ZBVZeroBubble"), VEE, 2)
print(f"{1e3 * zero.seconds:.1f} ms, idle {idle_share(zero, M):.1%}")
assert round(1e3 * zero.seconds, 1) == 25.5
draw.timeline(zero, caption="Zero bubble in the shape of a V (rank 0 has the first and the last "
              "stage): weights' gradients, the darkest, fill the gaps.")

# %% [markdown] id="15-a65e12"
# The work alone takes 24 ms. Interleaving took 28.5 ms, and zero bubble takes 25.5 ms. Once a rank has begun, it does not wait any more. What remains is the start: until the first micro-batch has come, a rank has nothing to do. Such a schedule needs enough micro-batches, and a W about as long as an I. (Our cell asks autograd twice, which goes through parts of the graph twice. A real implementation keeps for W what I has computed.)
#
# ## Break it: three hangs
#
# The first: a pipeline that is right for many micro-batches may hang with few. Here rank r makes n − r forwards first, *whatever m is*. There are two micro-batches, and rank 0 counts on four. Ranks 2 and 3 are done with their two, and ranks 0 and 1 wait for gradients that nobody will compute.
#
# The second: in the middle of 1F1B one of two neighbours has an activation and the other has a gradient. Both send first, and wait. The third: both use `isend`, which is right on gloo. On NCCL each rank's receive stands in the queue after its send, and the send waits for the other's receive. `batch_isend_irecv` starts both calls at once, and mends the second hang and the third.

# %% id="15-092383"
def careless(n, m):
    return [one_after_one(n, max(m, n - rank))[rank] for rank in range(n)]

with expect(Deadlock):
    simulate(play, careless(4, 2), range(4), world_size=4)

# %% id="15-458118"
def swap(how):
    other, mine, theirs = 1 - dist.get_rank(), torch.ones(SHAPE), torch.empty(SHAPE)
    if how == "send first":
        dist.send(mine, other)
        dist.recv(theirs, other)
    elif how == "isend first":
        work = dist.isend(mine, other)
        dist.recv(theirs, other)
        work.wait()
    else:
        ops = [dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, theirs, other)]
        [work.wait() for work in dist.batch_isend_irecv(ops)]
    return theirs.sum().item()

with expect(Deadlock):
    simulate(swap, "send first", world_size=2)
assert simulate(swap, "isend first", world_size=2).results == [64.0, 64.0]
with expect(Deadlock):
    simulate(swap, "isend first", world_size=2, backend="nccl")
assert simulate(swap, "in a batch", world_size=2, backend="nccl").results == [64.0, 64.0]

# %% [markdown] id="15-6107c5"
# ## In practice: torch.distributed.pipelining
#
# `PipelineStage` wraps a module that is a stage, and a schedule object does the rest: call `step(inputs)` on the first rank, `step(target=…)` on the last and `step()` on the others. The schedule cuts the batch into micro-batches, sends and receives, and divides the gradients by m.
#
# **Data × pipeline.** Below are two pipelines of two stages each, on four real ranks. A mesh has a row for each pipeline, and a column for the two ranks that have the same stage. Each pipeline gets half of the micro-batches; after the step, each column averages its gradients, as in lesson 05.

# %% id="15-f078e2"
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

def two_by_two():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipeline"))
    replica, rank = mesh.get_local_rank("data"), mesh.get_local_rank("pipeline")
    module, mine, values = network()[2 * rank : 2 * rank + 2], slice(replica, M, 2), []
    stage = PipelineStage(module, rank, 2, torch.device("cpu"), group=mesh.get_group("pipeline"))
    schedule = Schedule1F1B(stage, M // 2, F.mse_loss)
    x, t = inputs[mine].flatten(0, 1), targets[mine].flatten(0, 1)
    schedule.step(*[x] * (rank == 0), target=t if rank else None, losses=values)
    for p in module.parameters():
        dist.all_reduce(p.grad, dist.ReduceOp.AVG, mesh.get_group("data"))
    return {name: p.grad for name, p in module.named_parameters()}, sum(values)

job = run(two_by_two, world_size=4)
print(compare_gradients(reference, [gradients for gradients, _ in job.results]))
both = sum(total for _, total in job.results) / M
print("loss:", round(both.item(), 4))
assert torch.isclose(both, sum(losses) / M)

# %% [markdown] id="15-f737a1"
# Gradients and loss are those of one process.
#
# **The schedules, recorded.** Do PyTorch's schedules take the times of our skeleton? These cells run them in the simulator on real modules that take time. Each stage is told the shapes of its input and output in advance. Without that, the stages tell one another in the first step.
#
# On NCCL there is a trap. All neighbours share one communicator, where calls run one after another. With interleaving a message to one neighbour may have to wait for a message to the other. PyTorch warns of that; the cells turn the warning off. Its way out is the setting `pipeline_per_edge_p2p` (or the variable `TORCH_DISTRIBUTED_PIPELINE_PER_EDGE_P2P=1`). It gives each pair of neighbours a communicator of its own for each direction. The last of the cells plays interleaving both ways on modelled GPUs. Plain 1F1B takes 33.0 ms: guess first which of the two ways beats it.

# %% id="15-7981ac"
import torch.distributed.config as settings
import torch.distributed.pipelining as pipelining

class Timed(nn.Sequential):
    def __init__(self, v):
        super().__init__(nn.Linear(16, 16), nn.Tanh())
        self.v, self.count = v, 0
    def forward(self, x):
        i, self.count = self.count, self.count + 1
        self.passes("F", i)
        y = super().forward(x)
        y.register_hook(lambda gradient: self.passes("B", i))
        return y
    def passes(self, kind, i):
        with span(f"{kind}{i}"):
            compute(SECONDS[kind] / self.v)

# %% id="15-b3d535"
def by_torch(name, home, per_edge=False):
    logging.getLogger("torch.distributed.pipelining").setLevel(logging.ERROR)  # no warning
    settings.pipeline_per_edge_p2p = per_edge
    rank, n, last = dist.get_rank(), dist.get_world_size(), len(home) - 1
    stages = [PipelineStage(Timed(len(home) // n), k, len(home), torch.device("cpu"),
                            input_args=(torch.zeros(SHAPE, requires_grad=k > 0),),
                            output_args=(torch.zeros(SHAPE, requires_grad=True),))
              for k in range(len(home)) if home[k] == rank]
    schedule = getattr(pipelining, name)(stages if len(stages) > 1 else stages[0], M, F.mse_loss)
    target = {"target": targets.flatten(0, 1)} if home[last] == rank else {}
    schedule.step(*[inputs.flatten(0, 1)] * (rank == 0), **target)
    assert all(p.grad is not None for stage in stages for p in stage.submod.parameters())
    try:
        return pipelining.analyze_pipeline_activation_liveness(
            schedule, pp_rank=rank, stage_indices=[stage.stage_index for stage in stages],
            granularity="stage_microbatch").num_slots
    except ValueError as error:
        return str(error)

# %% id="15-015c64"
jobs = {name: simulate(by_torch, f"Schedule{name}", home, world_size=4, network=FREE)
        for name, home in {"GPipe": range(4), "1F1B": range(4), "Interleaved1F1B": LOOP,
                           "InterleavedZeroBubble": LOOP, "ZBVZeroBubble": VEE,
                           "DualPipeV": VEE}.items()}
timed = {name: round(1e3 * jobs[name].seconds, 1) for name in [*jobs][:3]}
print(timed, "  stepped:", *[*jobs][3:])
made = [[s.name for s in jobs["1F1B"].trace.spans if s.rank == rank and s.name != "compute"]
        for rank in range(4)]
assert made == [[f"{kind}{i}" for _, kind, i in row] for row in one_after_one(4, M)]
assert [*timed.values()] == [33.0, 33.0, 28.5] and jobs["GPipe"].results == alive["GPipe"]

shared, own = (simulate(by_torch, "ScheduleInterleaved1F1B", LOOP, per_edge, world_size=4,
                        network=FREE, backend="nccl").seconds for per_edge in (False, True))
print(f"one communicator: {1e3 * shared:.1f} ms, one for each pair: {1e3 * own:.1f} ms")
assert (round(1e3 * shared, 1), round(1e3 * own, 1)) == (35.0, 28.5)

# %% [markdown] id="15-374f29"
# The times are those of the skeleton, and PyTorch's 1F1B does the same work in the same order as our list. (`Timed` takes all of backward's time in one piece. The last three schedules cut backward in two, so the cell steps them and does not time them.)
#
# With one communicator, interleaving takes 35.0 ms and is slower than plain 1F1B. With one for each pair and direction it takes the 28.5 ms that the skeleton took.
#
# ## Trust the trace
#
# `get_schedule_ops` is PyTorch's own tool for drawing schedules. For plain 1F1B it agrees with us on three of four stages. What does it say of the last one? `analyze_pipeline_activation_liveness`, which the cell above has called, reads the same list to count what is alive. What does it say?

# %% id="15-ccbecd"
listed = orders_of("1F1B", v=1)
print("listed:", listed[3][:2], "…", listed[3][-2], "  recorded:", made[3][:2], "…", made[3][-2])
print("alive:", jobs["1F1B"].results)
assert listed[:3] == one_after_one(4, M)[:3] and jobs["1F1B"].results[:3] == alive["1F1B"][:3]
with expect(Deadlock):
    simulate(play, listed, range(4), world_size=4, network=FREE)

# %% [markdown] id="15-00a5be"
# The last stage's list begins with micro-batch 1 and ends with a ninth one, which does not exist. Played as it stands, it hangs. What really runs is right: the record says so, and so do the gradients. The analysis agrees with our count where the list is right, and refuses the list where it is wrong. A plan is a claim; a trace is what happened. When they differ, trust the trace.
#
# ## Roads not taken
#
# * **Old weights.** PipeDream never empties the pipeline: a stage goes on with weights that are some steps old. There is no bubble, but the training is not the same.
# * **Even stages.** Real models have an embedding in front and a large last layer. The slowest stage sets the pace, so cutting well matters as much as the schedule.
# * **A tracer.** `pipelining.pipeline()` cuts a model by `torch.export`, without stages written by hand.
#
# ## What you can do now
#
# * ☑ cut a model in two by hand, and take gradients across the cut;
# * ☑ write GPipe and 1F1B, and predict their time and what they hold;
# * ☑ play a schedule from its list, and say what interleaving and zero bubble buy;
# * ☑ read a hang of too few micro-batches, of two sends, and of a missing batch on NCCL;
# * ☑ combine pipelines with data parallelism, and compare gradients with one process;
# * ☑ use `torch.distributed.pipelining`, and check its plan against a trace.
#
# **Next:** [lesson 16](16_experts.ipynb) spreads experts over ranks. [Lesson 14](14_tensor_parallel.ipynb) complements this one: cut layers inside a node, and between layers across nodes.
#
# ## Sources
#
# * Y. Huang and others, *GPipe*, 2019, [arXiv:1811.06965](https://arxiv.org/abs/1811.06965)
# * D. Narayanan and others, *PipeDream*, 2019, [arXiv:1806.03377](https://arxiv.org/abs/1806.03377)
# * D. Narayanan and others, *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM*, 2021, [arXiv:2104.04473](https://arxiv.org/abs/2104.04473) (interleaving; its bubble is over working time)
# * P. Qi and others, *Zero Bubble Pipeline Parallelism*, 2023, [arXiv:2401.10241](https://arxiv.org/abs/2401.10241)
# * PyTorch 2.15: [Pipeline Parallelism](https://docs.pytorch.org/docs/stable/distributed.pipelining.html)
# * Mistakes of others: [torchtitan#775](https://github.com/pytorch/torchtitan/issues/775) (fewer micro-batches than stages), [pytorch#172668](https://github.com/pytorch/pytorch/issues/172668) (both send first), [Megatron-LM#5240](https://github.com/NVIDIA/Megatron-LM/issues/5240) (batches on NCCL)
