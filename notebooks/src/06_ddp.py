# %% [markdown] id="06-a06791"
# # Hand the averaging over to DistributedDataParallel
#
# **From a script for one device to DDP on many, and out of the notebook.**
#
# ![One training step of two ranks, as recorded, averaged by DistributedDataParallel: the first all_reduce starts while the backward pass is still computing gradients](../../figures/06_ddp.png)
#
# *Where this goes: DDP sends the first gradients while others are still being computed, and you did not write a line for it.*
#
# | | |
# |---|---|
# | **Do** | wrap a model, read in its trace what the wrapper does, train and evaluate exactly, accumulate, meet uneven data, turn a script for one device into one for many, and start it with `torchrun` |
# | **Learn** | buckets and overlap; DistributedSampler; `no_sync`; what AMP, clipping, BatchNorm, memory and checkpoints look like under DDP; what carries over to Slurm, Kubernetes and GPUs |
# | **Need** | [lesson 05](05_gradient_averaging.ipynb): gradients averaged by hand |
# | **Time** | about 80 minutes with the required exercise, 95 with the optional one as well |

# %% [markdown] id="06-9ff263"
# ## The smallest job there is
#
# We fit a line, *y = wx*, to four points: *x* = 1, 2, 3, 4 and *y = 2x*. The loss is the mean of (*wx − y*)², and its gradient is the mean of 2*x*(*wx − y*). We start at *w* = 0, where the gradient is −4 · (1 + 4 + 9 + 16) / 4 = **−30**, our *reference*. One step with learning rate 0.01 leads to *w* = 0.3.
#
# Two ranks take two points each: rank 0 takes 1 and 3, rank 1 takes 2 and 4. Rank 0's gradient is −4 · (1 + 9) / 2 = −20, rank 1's is −4 · (4 + 16) / 2 = −40, and their mean is −30 again.
#
# The cell wraps the model in `DistributedDataParallel`, DDP for short, which does its work during `backward()`. `torch.autograd.grad`, which DDP does not notice, shows us each rank's own gradient.

# %% id="06-af21f2"
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from course_lib import (Deadlock, RankFailed, check, device, draw, expect, load_digits, run,
                        simulate, span)

# %% id="06-b012aa"
x = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
reference = (-4 * x**2).mean().item()
assert reference == -30

def regression():
    model = nn.Linear(1, 1, bias=False, device=device())
    nn.init.zeros_(model.weight)
    ddp = DistributedDataParallel(model)
    mine = x[dist.get_rank() :: dist.get_world_size()].to(device())
    loss = ((ddp(mine) - 2 * mine) ** 2).mean()
    own = torch.autograd.grad(loss, model.weight, retain_graph=True)[0].item()
    loss.backward()
    torch.optim.SGD(ddp.parameters(), lr=0.01).step()
    return {"own gradient": [own], "mean of both": [model.weight.grad.item()],
            "new w": [round(model.weight.item(), 6)]}

line = run(regression, world_size=2)
assert [list(r.values()) for r in line.results] == [[[-20], [-30], [0.3]], [[-40], [-30], [0.3]]]
draw.values(line, caption="After backward() both ranks hold the mean of their gradients, "
            "so both reach the same w.")

# %% [markdown] id="06-548a49"
# ## What DDP sends
#
# Nothing in `regression` sends anything, so who does? DDP registers a *hook* on every parameter. Autograd calls the hook as soon as the parameter's gradient is ready, in the middle of `backward()`. In outline:
#
# ```python
# def gradient_is_ready(parameter):  # called by autograd, once per parameter
#     bucket = bucket_of[parameter]
#     bucket.copy_in(parameter.grad / world_size)
#     if bucket.is_full():
#         bucket.work = dist.all_reduce(bucket.flat, async_op=True)  # returns at once
#
# def all_gradients_are_ready():  # called by autograd at the end of backward()
#     for bucket in buckets:
#         bucket.work.wait()
#         bucket.copy_out()
# ```
#
# A *bucket* is one flat tensor for several gradients, so the latency α is paid per bucket and not per parameter.
#
# To see several buckets we need a larger model. This one has 563,722 parameters, so its gradients take **S = 4 · 563,722 = 2,254,888 bytes**. DDP closes a bucket once it *reaches* a cap: by default 1 MiB for the first bucket, which can then leave early, and 25 MiB for the others. We set 1 MiB for all buckets, and take four steps, first averaging by hand and then with DDP.
#
# **Predict.** By hand, a step makes eight `all_reduce` calls, one per weight and bias. How many does DDP make in its very *first* step?

# %% id="06-bd98a8"
guess = None

# %% id="06-bc81ee"
from contextlib import ExitStack

def network(width=512):
    torch.manual_seed(0)
    hidden = [layer for _ in range(2) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), *hidden,
                         nn.Linear(width, 10)).to(device())

def loss_of(model, size):
    images, labels = (t.to(device()) for t in load_digits()[:size])
    return nn.functional.cross_entropy(model(images), labels)

def timed_backward(loss, last):
    """loss.backward() in two spans, cut where the gradient of ``last`` has been computed."""
    def computed(_):
        phase.close()
        phase.enter_context(span("waiting"))

    with ExitStack() as phase:
        phase.enter_context(span("backward"))
        hook = last.register_post_accumulate_grad_hook(computed)
        loss.backward()
    hook.remove()

# %% id="06-032e9d"
def steps(by_hand, n_steps=4):
    model = network()
    ddp = model if by_hand else DistributedDataParallel(model, bucket_cap_mb=1)
    for _ in range(n_steps):
        model.zero_grad()
        with span("forward"):
            loss = loss_of(ddp, 256)
        timed_backward(loss, last=model[1].weight)  # the first layer's gradient comes last
        for parameter in model.parameters() if by_hand else ():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

def window(job, step=2):
    """When a step began and ended on rank 0, when its last gradient was there, its calls."""
    spans = [s for s in job.trace.spans if s.rank == 0]  # forward, backward, waiting; and again
    forward, backward = spans[3 * step : 3 * step + 2]
    following = spans[3 * step + 3].start
    calls = [e for e in job.trace.of(0) if forward.start < e.issued < following]
    return (forward.start, following), backward.end, calls

# %% id="06-55ff42"
hand, wrapped = run(steps, True, world_size=2), run(steps, False, world_size=2)
sent = [(e.op, e.nbytes) for e in wrapped.trace.of(0)]
print("your guess:", guess, "  recorded, from the start to the end of the second step:")
print(*(f"{op:<11}{nbytes:>10,} bytes" for op, nbytes in sent[:9]), sep="\n")
S = 4 * sum(p.numel() for p in network().parameters())
assert sent[3] == ("all_reduce", S) and S == 4 * 563_722 == 2_254_888 and sent[6][1] == 1_071_144

# %% [markdown] id="06-156fb2"
# **At the start** the ranks compare how many parameters they have (`all_gather`) and their shapes (`broadcast`). Then rank 0 broadcasts its weights, S bytes. **The first step** ignores the cap: all gradients share one bucket and one call, because DDP does not know yet in which order they will become ready. **After it** DDP *rebuilds* the buckets in the order that it has seen, and rank 0 announces them in two small broadcasts. **From then on** each step reduces three buckets, last layers first. The first of them closes at 1,071,144 bytes, just past the cap.
#
# ## When it sends
#
# Timing is the other gain. The next two cells draw the third step of each job; the second picture can be stepped through. The span `backward` ends when the rank has computed its last gradient. In the hatched span after it, `waiting`, `backward()` only waits for reductions.
#
# By hand, all eight calls come after the last gradient. Under DDP the first bucket leaves *before* the last gradient is there, and can travel while the gradients of the first layers are still being computed. This is the *overlap*. (The first step has none: its only bucket fills with the last gradient.) Times depend on the machine; the cells assert the order.
#
# Our trace knows only the calls of `torch.distributed`. `torch.profiler`, in the third cell, also knows operators and what a GPU runs. It counts what DDP does in a step: three calls, and eight copies out of buckets.

# %% id="06-c6559d"
between, last_gradient, calls = window(hand)
assert len(calls) == 8 and all(call.issued > last_gradient for call in calls)
draw.timeline(hand, between=between, caption="By hand: eight calls, one after the other, and all "
              "of them after the last gradient.")

# %% id="06-5bd03a"
between, last_gradient, calls = window(wrapped)
assert len(calls) == 3 and calls[0].issued < last_gradient
draw.steps(wrapped, between=between, caption="DDP: the first of three buckets leaves while "
           "backward still computes gradients; what is hatched in the background is waiting "
           "for reductions.")

# %% id="06-2f6f93"
import os

from torch.profiler import ProfilerActivity, profile

os.environ["KINETO_LOG_LEVEL"] = "99"  # otherwise the profiler warns that there is no GPU

def profiled():
    ddp = DistributedDataParallel(network(), bucket_cap_mb=1)
    for _ in range(2):
        loss_of(ddp, 64).backward()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        loss_of(ddp, 64).backward()
    return {e.key: e.count for e in seen.key_averages()}

counted = run(profiled, world_size=2).results[0]
for name, count in counted.items():
    if name.startswith(("DistributedData", "c10d::", "gloo:", "torch.distributed.ddp")):
        print(f"{count:>3} × {name}")

# %% [markdown] id="06-39e931"
# On two cores the overlap saves little, because gloo itself needs a core for its sums. On a GPU, NCCL works beside backward, as [lesson 07](07_gpus.ipynb) shows, and most of the communication can be hidden (Li and others, 2020). What is not hidden shows as a gap between backward and the optimizer in a profiler's timeline.
#
# ## Who draws which samples
#
# Each rank needs a share of the data, and a different one in each epoch. `DistributedSampler` shuffles **all** indices in the same way on every rank and gives each rank every *n*-th of them. The shuffle depends on `seed + epoch`. The sampler cannot see that an epoch has ended, so `set_epoch` tells it. Without that call nothing fails, and every epoch repeats the order of the first.
#
# All shares have the same length, because all ranks have to take the same number of steps. Ten samples on four ranks make twelve draws; two are *padding*, samples already drawn (`drop_last=True` leaves some out instead). For training this hardly matters, but an accuracy should count each sample once: measure it over shares without padding, after `model.eval()`, and on the **model itself**. The wrapper's forward pass may communicate, so `ddp(x)` inside `if rank == 0:` can wait for ever for the other ranks.
#
# A `DataLoader` takes a sampler *or* `shuffle=True`. Its `num_workers` is per rank: eight ranks with four workers each start 32 processes. With `pin_memory=True` *and* `x.to(device, non_blocking=True)` the CPU does not wait for copies to the GPU. If the dataset has to be downloaded, one rank per machine does it while the others wait at a barrier.

# %% id="06-96b6cd"
from torch.utils.data import DataLoader, DistributedSampler

samplers = [DistributedSampler(range(10), num_replicas=4, rank=rank) for rank in range(4)]
for epoch in (0, 1):
    for sampler in samplers:
        sampler.set_epoch(epoch)
    print(f"epoch {epoch}, by rank:", *map(list, samplers))

# %% [markdown] id="06-9669ee"
# ## Your turn: train_ddp
#
# **Required · 06.1 · difficulty ●●○ · about 25 minutes**
#
# **Goal.** Train the model that each rank is given; all begin with rank 0's weights. After each epoch report two numbers, the same on every rank: the mean loss over all samples drawn in the epoch, and the accuracy at its end, over the whole dataset, with each sample counted once. **Budget:** DDP reduces the gradients once in each step; other small calls are free.
#
# The check compares numbers and weights with those of one process that takes all ranks' batches together. *Sturdy* adds one rank, eight ranks, a frozen layer, buffers, and Dropout with p = 1, in which chance plays no part.
#
# <details>
# <summary>Hint: three traps</summary>
#
# The loss that `cross_entropy` returns is the mean over its batch, and the last batch may be smaller. The sampler for training pads; `dataset[rank::world_size]` does not. And add up counts over all ranks first; divide once, at the end.
#
# </details>

# %% exercise="train_ddp" role="answer" points=10 required=true difficulty=2
def train_ddp(model, dataset, epochs: int, batch_size: int, seed: int) -> dict:
    """Train a model under DistributedDataParallel; every rank calls it.

    Args:
        model: this rank's own nn.Module, not wrapped. It turns a batch of inputs into logits
            (B, classes), and has no BatchNorm. The weights of rank 0 are those to begin with. It is
            this very model that is trained: afterwards it has the new weights.
        dataset: a TensorDataset of inputs and labels, the same on every rank.
        epochs: passes through the dataset; 1 or more.
        batch_size: samples per batch on one rank, as DataLoader means it. The last batch of an
            epoch may be smaller, and is not left out.
        seed: for DistributedSampler, which is told the epochs 0, 1, ….

    Every batch is one step of SGD with learning rate 0.5, without momentum, on the mean
    cross-entropy of the batch.

    Returns:
        {"loss": [...], "accuracy": [...]}, one float per epoch in each, the same on all ranks:
        the mean cross-entropy over all samples drawn in the epoch (one drawn twice counts twice),
        each taken from the forward pass of its training step, and the fraction of the dataset that
        the model, in evaluation mode, classifies correctly at the end of the epoch.

    Works on course_lib's device(); loads data in this process (num_workers=0).
    """
    ### BEGIN SOLUTION
    here = device()
    model.to(here)
    ddp = DistributedDataParallel(model)
    sgd = torch.optim.SGD(model.parameters(), lr=0.5)
    order = DistributedSampler(dataset, seed=seed)
    batches = DataLoader(dataset, batch_size, sampler=order)
    history = {"loss": [], "accuracy": []}
    for epoch in range(epochs):
        order.set_epoch(epoch)
        counts = torch.zeros(3, device=here)  # loss, samples drawn, samples classified correctly
        model.train()
        for inputs, labels in batches:
            inputs, labels = inputs.to(here), labels.to(here)
            losses = nn.functional.cross_entropy(ddp(inputs), labels, reduction="none")
            sgd.zero_grad()
            losses.mean().backward()
            sgd.step()
            counts[0] += losses.detach().sum()
            counts[1] += len(labels)
        model.eval()
        with torch.no_grad():
            inputs, labels = dataset[dist.get_rank() :: dist.get_world_size()]
            counts[2] = (model(inputs.to(here)).argmax(1) == labels.to(here)).sum()
        dist.all_reduce(counts)
        loss, drawn, right = counts.tolist()
        history["loss"].append(loss / drawn)
        history["accuracy"].append(right / len(dataset))
    return history
    ### END SOLUTION

# %% exercise="train_ddp" role="try"
layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
trained = run(train_ddp, layers, load_digits(), 4, 32, 0, world_size=2).results
assert trained[0] == trained[1], "the two ranks report different numbers"
print("accuracy by epoch:", *(f"~{100 * share:.1f}%" for share in trained[0]["accuracy"]))
draw.lines({"your training": (range(4), trained[0]["loss"])}, xlabel="epoch", ylabel="mean loss",
           caption="Your training on two ranks: the loss should fall from epoch to epoch.")

# %% exercise="train_ddp" role="check"
check(train_ddp)

# %% [markdown] id="06-4b8bdd"
# ## The same training on 1, 2 and 4 ranks
#
# [course_tools/jobs/train.py](../../course_tools/jobs/train.py) is a training script as you would write it for a cluster. (It contains a solution: read it after writing yours.)
#
# Here, unlike in your exercise, `batch_size` counts the samples of all ranks together: 64. Each rank takes 64/n of them per step, so the losses can be compared. On two ranks they differ from those of one by rounding. Four ranks have to pad: each epoch's last batch repeats the epoch's first two samples, and the weights then differ a little. The second cell asserts that every run recognises at least 97% of the test digits.
#
# **Does it pay?** *Throughput* is the samples per second of all ranks together. *Scaling efficiency* divides the throughput of n ranks by n times that of one. It is poor here: the ranks share two cores, and the model is too small to be worth its messages. On a cluster, Goyal and others (2017) kept an efficiency of about nine tenths from 8 to 256 GPUs.

# %% id="06-e75ebc"
import sys
import time
from pathlib import Path

import course_tools

folder = Path(course_tools.__file__).with_name("jobs")
sys.path.insert(0, str(folder))
import train as script

def training(epochs=5, batch_size=64):
    digits, here = load_digits(), device()
    sampler = DistributedSampler(digits)
    loader = DataLoader(digits, batch_size // dist.get_world_size(), sampler=sampler)
    torch.manual_seed(0)
    model = script.digit_model().to(here)
    ddp, losses = DistributedDataParallel(model), []
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    began = time.perf_counter()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        losses.append(script.train_epoch(ddp, adam, loader, here))
    rate = epochs * len(digits) / (time.perf_counter() - began)
    return losses, script.accuracy(model, load_digits(train=False), here), rate

# %% id="06-ec0293"
runs = {n: run(training, world_size=n).results for n in (1, 2, 4)}
alone, _, first = runs[1][0]
for n, [(losses, accuracy, rate), *_] in runs.items():
    gain, apart = rate / first, max(abs(a - b) for a, b in zip(losses, alone, strict=True))
    print(f"ranks: {n}  {rate:.0f} images/s  efficiency ~{gain / n:.2f}  loss off by ~{apart:.0e}")
    assert accuracy >= 0.97 and all(other[1] == accuracy for other in runs[n])

# %% [markdown] id="06-ad2b1b"
# ## Accumulate: several batches, one reduction
#
# If a batch does not fit into memory, split it into *micro-batches*: each `backward()` adds to `.grad`, and one optimizer step follows the last of them. Under DDP each `backward()` also reduces every bucket. All of these reductions but the last are wasted.
#
# Inside `with ddp.no_sync():` gradients stay on their rank. The **forward** pass has to run inside, too: it decides whether its backward pass will reduce. The first forward and backward pass outside the block reduces everything that has accumulated. Guess before you run the cells: with `no_sync`, what share of the bytes do four micro-batches still send?

# %% id="06-2ced73"
from contextlib import nullcontext

def accumulate(quiet, micro_batches=4):
    ddp = DistributedDataParallel(network())
    for number in range(1, micro_batches + 1):
        with ddp.no_sync() if quiet and number < micro_batches else nullcontext():
            (loss_of(ddp, 16) / micro_batches).backward()

# %% id="06-951fb0"
traces = [run(accumulate, quiet, world_size=2).trace for quiet in (False, True)]
loud, quiet = (sum(e.nbytes for e in trace.of(0) if e.op == "all_reduce") for trace in traces)
assert (loud, quiet) == (4 * S, S)
draw.bars({"each of them reduces": loud / 1e6, "all but one in no_sync": quiet / 1e6}, unit="MB",
          exact=True, caption="What rank 0 hands to all_reduce in a step of four micro-batches.")

# %% [markdown] id="06-f6f2b0"
# ## Your turn: accumulate_step
#
# **Optional · 06.2 · difficulty ●●○ · about 15 minutes**
#
# Now add *clipping*: a gradient that is longer than `max_norm` is scaled down to that length. What counts is the length of the *averaged* gradient. Every rank holds it after the last backward pass, so `torch.nn.utils.clip_grad_norm_` computes the same norm everywhere without a message.
#
# **Goal.** One step on all micro-batches of all ranks, as if they were one batch. **Budget:** the gradients are reduced once, not gathered. *Sturdy* adds one rank, eight or more, a single micro-batch, float64, a frozen layer, and gradients left over from before.
#
# <details>
# <summary>Hint: what each micro-batch adds</summary>
#
# The gradient of a mean over k equal parts is the sum of k gradients, each divided by k. DDP divides by the number of ranks, and by nothing else. Only the last backward pass may reduce: where must its forward pass stand? The loss that you return has to travel, too: DDP averages gradients only.
#
# </details>

# %% exercise="accumulate_step" role="answer" points=5 required=false difficulty=2
def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    """One optimizer step with the gradient of all micro-batches of all ranks; every rank calls it.

    Args:
        ddp_model: a model under DistributedDataParallel whose outputs are logits (B, classes).
            Its next backward pass, after this function, reduces as usual.
        optimizer: of all its parameters. Gradients left over from before are ignored.
        micro_batches: a list of (inputs, targets), one or more, all of the same size, and the same
            number on every rank.
        max_norm: the gradient of the mean cross-entropy over all micro-batches of all ranks is
            scaled down to this norm where it is longer, as by torch.nn.utils.clip_grad_norm_.

    Returns:
        The mean cross-entropy over all micro-batches of all ranks, before the step, to float32
        precision: the same on every rank. Losses are finite.
    """
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    losses = []

    def one(inputs, targets):
        loss = nn.functional.cross_entropy(ddp_model(inputs), targets)
        (loss / len(micro_batches)).backward()
        losses.append(loss.detach())

    *first, last = micro_batches
    with ddp_model.no_sync():
        for batch in first:
            one(*batch)
    one(*last)
    nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()
    ### END SOLUTION

# %% exercise="accumulate_step" role="try"
def try_it():
    ddp = DistributedDataParallel(network(32))
    mine = [t[dist.get_rank() : 64 : 2].to(device()).chunk(4) for t in load_digits().tensors]
    sgd, batches = torch.optim.SGD(ddp.parameters(), lr=0.1), list(zip(*mine, strict=True))
    return [round(accumulate_step(ddp, sgd, batches, 1.0), 3) for _ in range(3)]

run(try_it, world_size=2).results

# %% exercise="accumulate_step" role="check"
check(accumulate_step)

# %% [markdown] id="06-e82400"
# ## Break it
#
# **First**, rank 0 has three batches and rank 1 only two. We run this in the simulator, which knows at once that nobody is left to answer. (`run` would say the same a few seconds later.)
#
# The sampler's padding prevents this. Where the number of batches is unknown (streamed or filtered data), `Join` helps: a rank that has run out answers the collectives of the others with zeros until all are done. (The mean still divides by the number of *all* ranks.) This costs two `all_reduce` calls of 4 bytes in each forward pass, and one at the end.
#
# **Second**, the error that everybody meets: a parameter that takes no part in the loss. Its hook is never called, so its bucket never fills. DDP notices in the *next* forward pass and gives the parameter's number. `TORCH_DISTRIBUTED_DEBUG=INFO` adds its name. (Do not set DETAIL: lesson 07 says why.) If steps are meant to skip it, `find_unused_parameters=True` makes DDP search the graph for such parameters in each step. If not, you have found a bug in your model.

# %% id="06-30eccf"
from torch.distributed.algorithms.join import Join

def uneven(join):
    ddp, batches = DistributedDataParallel(nn.Linear(1, 1, device=device())), 3 - dist.get_rank()
    with Join([ddp], enable=join):
        for _ in range(batches):
            loss = ddp(torch.ones(1, 1, device=device())).sum()
            loss.backward()
    return batches

with expect(Deadlock):
    simulate(uneven, False, world_size=2)

job = run(uneven, True, world_size=2)
questions = [e for e in job.trace.of(0) if e.op == "all_reduce" and e.nbytes == 4]
print("with Join, batches by rank:", job.results, "  small all_reduce calls:", len(questions))
assert job.results == [3, 2] and len(questions) == 2 * 3 + 1

# %% id="06-4f3ee3"
def two_steps(find):
    model = nn.Linear(2, 1)
    model.forgotten = nn.Linear(2, 1)  # a layer that forward() does not use
    ddp = DistributedDataParallel(model.to(device()), find_unused_parameters=find)
    for _ in range(2):
        ddp(torch.ones(1, 2, device=device())).sum().backward()

run(two_steps, True, world_size=2)
with expect(RankFailed):
    run(two_steps, False, world_size=2)

# %% [markdown] id="06-42636d"
# ## Half the bits, half the bytes?
#
# AMP, automatic mixed precision, runs the matrix products and convolutions of the forward pass in bfloat16 or float16, inside `torch.autocast`. The weights stay float32, so the gradients do too. How many bytes does that save? Guess before you run the cell below. Float16 also needs a `GradScaler`; call its `unscale_` before clipping. The scaler skips a step whose gradients have overflowed; all ranks see the same averaged gradients, so all skip the same steps.
#
# To shrink the messages, give DDP a *communication hook*, a function that it calls for each bucket in place of `all_reduce`. The one in the cell sends bfloat16. This changes the training, because precision is lost on the way.
#
# ## What else changes
#
# **Memory.** Every rank holds everything. With Adam in float32 a parameter takes 16 bytes: 4 for the weight, 4 for its gradient, 8 for Adam's two averages. DDP's buckets add 4, unless `gradient_as_bucket_view=True` lets gradients live in them. Five billion parameters fill an 80 GB GPU before the first activation, and more ranks do not help. Sharding (FSDP) does.
#
# **Seeds.** Weights come from rank 0. The sampler's seed has to be the same on all ranks. The seeds of dropout and augmentation should differ, or all ranks drop the same units: call `torch.manual_seed(seed + rank)` after the model is made.
#
# **BatchNorm** uses the statistics of the rank's own samples. DDP does *not* convert it, but broadcasts rank 0's running statistics before each forward pass. `nn.SyncBatchNorm.convert_sync_batchnorm(model)` makes it use the samples of all ranks, on GPUs only.
#
# **`torch.compile`** goes with DDP, whichever you apply first: the compiler cuts its graph where DDP's buckets end, so that buckets still leave during backward.
#
# **Schedulers.** If each rank keeps its batch size, *n* ranks take one *n*-th of the steps per epoch. Derive a scheduler's length from `len(loader)`.
#
# **Saving.** All ranks hold the same weights, so one rank writes. (Lesson 12 saves in a way that survives a kill.) Save the `state_dict()` of the model, not of the wrapper, so that the file opens without DDP. Add what else training depends on: optimizer, scheduler, epoch, and each rank's random generators if dropout is to continue exactly. **Loading.** Every rank loads, each to its own device: without `map_location`, eight ranks load onto GPU 0, from which the file was written.

# %% id="06-e6e5f0"
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

def first_step(kind):
    ddp = DistributedDataParallel(network())
    if kind == "communication hook":
        ddp.register_comm_hook(None, bf16_compress_hook)
    with torch.autocast(device().type, torch.bfloat16, enabled=kind == "autocast"):
        loss = loss_of(ddp, 32)
    loss.backward()

for kind, expected in (("float32", S), ("autocast", S), ("communication hook", S // 2)):
    events = run(first_step, kind, world_size=2).trace.of(0)
    (event,) = [e for e in events if e.op == "all_reduce"]
    print(f"{kind:<20}{event.dtype:<10}{event.nbytes:>10,} bytes")
    assert event.nbytes == expected

# %% [markdown] id="06-36e182"
# ## Before and after
#
# The cell prints all that differs between [course_tools/jobs/single.py](../../course_tools/jobs/single.py), for one device, and [course_tools/jobs/ddp.py](../../course_tools/jobs/ddp.py), for many.
#
# * **Who am I?** `torchrun` starts the processes and tells each its `LOCAL_RANK`, its number on this machine. On GPUs that number chooses the device in three places: first in `set_device`, or every process would use GPU 0 as well; then in `device_id=` for NCCL and in `device_ids=` for DDP.
# * **My share.** A sampler with its `set_epoch` replaces `shuffle=True`. Dividing the batch by the number of ranks keeps the global batch, and so the learning rate.
# * **Train through the wrapper, evaluate without it.** Only the loss comes from `ddp(…)`.
# * **Rank 0 alone** prints and saves.

# %% id="06-808d1a"
import difflib

before, after = ((folder / name).read_text().splitlines() for name in ("single.py", "ddp.py"))
changes = difflib.unified_diff(before, after, "single.py", "ddp.py", lineterm="", n=0)
print(*("" if line.startswith("@@") else line for line in changes), sep="\n")

# %% [markdown] id="06-65a610"
# ## Out of the notebook
#
# On one machine with eight GPUs, type `torchrun --standalone --nproc-per-node=8 ddp.py` in `course_tools/jobs/`.
#
# On several machines, start one torchrun on each, with the same arguments. It is that machine's *agent*. The agents have to find one another:
#
# * `--rdzv-endpoint=host:port` is the meeting point. The agent on that host opens a store there, and the others connect to it.
# * `--rdzv-backend=c10d` says that it is PyTorch's own store.
# * `--rdzv-id` names the job, so that two jobs with one meeting point do not mix.
#
# When `--nnodes` agents have arrived, they agree on who starts which ranks. The second cell starts two agents with one rank each, which run ddp.py: to the ranks it looks like two machines.
#
# Then train.py continues from what ddp.py has saved. It runs on ranks of `run`, to which `init=False` gives torchrun's variables, but no group. Several machines need a disk that all share: train.py refuses to start if a rank cannot see rank 0's folder.
#
# Every process imports torch anew: this takes ten seconds, on a busy machine half a minute.

# %% id="06-e4f8c6"
import re
import socket
import subprocess
import tempfile

files = tempfile.TemporaryDirectory()
variables = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",  # on CPUs
                          "TMPDIR": files.name}

def show(text):  # with a ~ before what was measured
    print(re.sub(r"\d+\.\d+|\d{3,}", r"~\g<0>", text), end="", flush=True)

def follow(*jobs):
    """Run torchrun agents side by side; show what their ranks say, line by line as it comes."""
    (reading, writing), errors = os.pipe(), Path(files.name, "errors")
    agents = [subprocess.Popen([sys.executable, "-m", "torch.distributed.run", *words.split()],
                               cwd=files.name, env=variables, stdout=writing,
                               stderr=errors.open("a")) for words in jobs]
    os.close(writing)
    with open(reading) as lines, ExitStack() as at_the_end:
        for agent in agents:
            at_the_end.callback(agent.terminate)  # one that still runs takes its ranks with it
        for line in lines:
            show(line)
        assert not any(agent.wait() for agent in agents), errors.read_text()

# %% id="06-ddbe72"
import io
from contextlib import redirect_stdout

with socket.create_server(("127.0.0.1", 0)) as probe:
    endpoint = f"127.0.0.1:{probe.getsockname()[1]}"  # a free port
agent = f"""--nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-id=7 --rdzv-endpoint={endpoint}
         --local-addr=127.0.0.1 {folder}/ddp.py"""
follow(agent, agent)

def train_on(checkpoint):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.argv = ["train.py", "--epochs=6", f"--checkpoint={checkpoint}"]
    with redirect_stdout(io.StringIO()) as said:
        script.main()
    return said.getvalue()

show(run(train_on, f"{files.name}/digits.pt", world_size=2, init=False).results[0])
files.cleanup()

# %% [markdown] id="06-e61b07"
# With `--max-restarts=3` the agents start **all** ranks again when one fails. Under torch 2.15 and gloo this needs `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` in the agents' environment, or a new rank may read a dead one's address from the agent's store, and the job hangs. (The files in `course_tools/jobs/` set it.) In the job below, two hosts were linked at 200 Mbit/s, and the second was killed after epoch 2 and started anew. An undisturbed job prints the same losses:
#
# ```
# 2 ranks, gloo, rank 0 on cpu
# epoch 0  loss 1.1658  test accuracy 0.9155  11193 images/s
# epoch 1  loss 0.1886  test accuracy 0.9521  14910 images/s
# epoch 2  loss 0.1226  test accuracy 0.9577  15072 images/s
# [rank0]: RuntimeError: … Read error [10.77.0.2]:19683: Connection reset by peer. …
# 2 ranks, gloo, rank 0 on cpu
# continues from digits.pt after epoch 2
# epoch 3  loss 0.0844  test accuracy 0.9718  8092 images/s
# epoch 4  loss 0.0582  test accuracy 0.9887  12233 images/s
# epoch 5  loss 0.0389  test accuracy 0.9887  10277 images/s
# loaded on all 2 ranks: test accuracy 0.9887
# ```
#
# [course_tools/jobs/train.sbatch](../../course_tools/jobs/train.sbatch) lets Slurm's `srun` start one agent per machine; they meet on the first. Since Slurm 22.05 `srun` has to be given `--cpus-per-task` again, or eight ranks may share one core. [course_tools/jobs/train.yaml](../../course_tools/jobs/train.yaml) defines a Kubernetes Indexed Job and a headless Service, through which its pods find one another.
#
# ## On GPUs
#
# `run(…, backend="nccl")` runs the functions above with one rank per GPU, because they ask `device()`, which under gloo is the CPU.
#
# ## Roads not taken
#
# `nn.DataParallel` is one process with a thread per GPU, which copies the model to all GPUs in every step; PyTorch recommends DDP. **FSDP** (`fully_shard`) divides weights, gradients and optimizer state among the ranks. **Accelerate, Lightning and Composer** wrap DDP.
#
# ## What you can do now
#
# * ☑ wrap a model, and read in its trace the start-up, the buckets and the overlap;
# * ☑ train and evaluate so that every rank reports the same, exact numbers;
# * ☑ accumulate with `no_sync` and clip the right gradient;
# * ☑ handle uneven data, unused parameters, mixed precision, BatchNorm, seeds, memory and checkpoints;
# * ☑ turn a script for one device into one for many, and start it with torchrun on one machine or several.
#
# **Next:** [lesson 07](07_gpus.ipynb) moves to GPUs: streams, overlap, and jobs that hang.
#
# ## Sources
#
# * PyTorch: [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html) (`no_sync`, buckets, hooks) · [DDP notes](https://docs.pytorch.org/docs/stable/notes/ddp.html) (its design) · [DistributedSampler](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler) · [Join](https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html) · [Communication hooks](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html) · [SyncBatchNorm](https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html) · [AMP](https://docs.pytorch.org/docs/stable/amp.html) · [torch.profiler](https://docs.pytorch.org/docs/stable/profiler.html) · [torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) · [DataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html) (the recommendation) · [torch.compile and DDP](https://docs.pytorch.org/docs/stable/notes/ddp.html#torchdynamo-ddpoptimizer)
# * S. Li and others, *PyTorch Distributed: Experiences on Accelerating Data Parallel Training*, VLDB 2020, [doi:10.14778/3415478.3415530](https://doi.org/10.14778/3415478.3415530)
# * P. Goyal and others, *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour*, 2017, [arXiv:1706.02677](https://arxiv.org/abs/1706.02677) (scaling from 8 to 256 GPUs)
# * Slurm: [srun](https://slurm.schedmd.com/srun.html) · Kubernetes: [Indexed Job](https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode)
# * Roads not taken: [FSDP](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) · [Accelerate](https://huggingface.co/docs/accelerate) · [Lightning](https://lightning.ai/docs/pytorch/stable/) · [Composer](https://docs.mosaicml.com/projects/composer/)
# * The digits: E. Alpaydin, C. Kaynak, UCI Machine Learning Repository, 1998, [doi:10.24432/C50P49](https://doi.org/10.24432/C50P49), CC BY 4.0
