# %% [markdown] id="06-a06791"
# # Hand the averaging over to DistributedDataParallel
#
# **The real one: the same function from a laptop to eight GPUs, and out of the notebook.**
#
# ![One training step of two ranks, as recorded, averaged by DistributedDataParallel: the first all_reduce starts while the backward pass is still running](../../figures/06_ddp.png)
#
# *Where this goes: gradients travel while others are still being computed, and you did not write a line for it.*
#
# | | |
# |---|---|
# | **Do** | wrap a model, read in its trace what the wrapper does, train and evaluate exactly, accumulate, meet uneven data, and start the same training with `torchrun`, on one machine and as if on two |
# | **Learn** | buckets and overlap; DistributedSampler; `no_sync`; where AMP, clipping, BatchNorm and checkpoints change under DDP; what carries over to Slurm, Kubernetes and GPUs |
# | **Need** | [lesson 05](05_gradient_averaging.ipynb): gradients averaged by hand |
# | **Time** | 60 minutes (estimated), one required exercise, one optional |

# %% [markdown] id="06-9ff263"
# ## The smallest job there is
#
# A line through the origin, *y = wx*, and four points: *x* = 1, 2, 3, 4 and *y = 2x*. We begin at *w* = 0. The loss is the mean of (*wx − y*)², its gradient the mean of 2*x*(*wx − y*), which at *w* = 0 is −4 · (1 + 4 + 9 + 16) / 4 = **−30**. That is the *reference*. One step with learning rate 0.01 leads to *w* = 0.3.
#
# Two ranks take two points each, 1 and 3, 2 and 4. By hand: rank 0 has −4 · (1 + 9) / 2 = −20, rank 1 has −4 · (4 + 16) / 2 = −40, and the mean of the two is −30 again.
#
# In the cell, `DistributedDataParallel`, DDP for short, is put round the model, and nothing else is said about other ranks. To look at a rank's own gradient we take it by `torch.autograd.grad`, of which DDP hears nothing. `backward()` is what it listens to.

# %% id="06-af21f2"
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from course_lib import Deadlock, check, device, draw, expect, load_digits, run, simulate, span

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
    return {"own": [own], "mean": [model.weight.grad.item()],
            "w": [round(model.weight.item(), 6)]}

line = run(regression, world_size=2)
assert all(r["mean"] == [reference] and r["w"] == [0.3] for r in line.results)
assert [r["own"] for r in line.results] == [[-20], [-40]]
draw.values(line, caption="After backward() both ranks hold the mean of their gradients, "
            "and w is the same.")

# %% [markdown] id="06-548a49"
# ## What DDP says
#
# No call of `torch.distributed` stands in that function, so who spoke? A *hook*: DDP asks autograd to be called whenever a parameter's gradient is ready. Several gradients share a *bucket*, one flat tensor. When a bucket is full, its `all_reduce` starts in the background, and `backward()` returns when the last one is done. The price for each message, α, is paid once a bucket instead of once a parameter.
#
# To see buckets we need a model with more than one: 563,722 parameters, so **S = 4 · 563,722 = 2,254,888 bytes** of gradients. The default bucket is 25 MiB, the first one 1 MiB, so that something can leave early; we ask for 1 MiB. The cell takes two kinds of steps: with the last lesson's averaging, and with DDP.
#
# **Predict.** The model has four linear layers with weight and bias. How many `all_reduce` calls does a step by hand make?

# %% id="06-bd98a8"
guess = None

# %% id="06-bc81ee"
def network(width=512):
    torch.manual_seed(0)
    hidden = [layer for _ in range(2) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), *hidden,
                         nn.Linear(width, 10)).to(device())

def loss_of(model, size):
    images, labels = (t.to(device()) for t in load_digits()[:size])
    return nn.functional.cross_entropy(model(images), labels)

def steps(by_hand, n_steps=4):
    model = network()
    ddp = model if by_hand else DistributedDataParallel(model, bucket_cap_mb=1)
    for _ in range(n_steps):
        model.zero_grad()
        with span("forward"):
            loss = loss_of(ddp, 256)
        with span("backward"):
            loss.backward()
        for parameter in model.parameters() if by_hand else ():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

# %% id="06-032e9d"
hand, wrapped = run(steps, True, world_size=2), run(steps, False, world_size=2)
calls = [e.op for e in hand.trace.of(0)].count("all_reduce") // 4
print(f"your guess: {guess}   recorded: {calls} calls a step by hand")
assert calls == 8

# %% id="06-55ff42"
S = 4 * sum(p.numel() for p in network().parameters())
said = [(e.op, e.nbytes) for e in wrapped.trace.of(0)]
print(*(f"{op:<11}{nbytes:>10,} bytes" for op, nbytes in said[:9]), sep="\n")
assert said[0] == ("all_gather", 16) and said[2:4] == [("broadcast", S), ("all_reduce", S)]
assert [op for op, nbytes in said if nbytes < 100] == ["all_gather", "broadcast", "broadcast"]
assert len(said) == 6 + 3 * 3 and sum(n for _, n in said[-3:]) == S == 4 * 563_722 == 2_254_888

# %% [markdown] id="06-156fb2"
# That was what rank 0 said under DDP, up to the second step. Four things are in it.
#
# **At the start** the ranks compare how many parameters they have (`all_gather`, 16 bytes) and which shapes (`broadcast`), and then all take over the weights of rank 0: one broadcast of S bytes. Different seeds do the weights no harm, therefore. **The first step** uses one bucket for everything; DDP notes in which order gradients become ready. **Once**, after that, the buckets are *rebuilt* in this order, and rank 0 tells the others what they are: two small broadcasts. **Each later step** reduces three buckets, last layers first. Their bytes add up to S, as the cell asserts.
#
# ## When it says it
#
# Fewer calls are one gain. The other shows only in time. Of each job the third step, as two real processes on gloo recorded it: by hand, nothing leaves before `backward()` has ended. Under DDP the bucket of the last layers is on its way while the gradients of the first ones are being computed: that is the *overlap*. The times are those of the machine that ran the lesson; what the cells assert is the order.
#
# The trace knows calls. `torch.profiler` knows operators, kernels on GPUs, and names what DDP does. The third cell counts: three buckets are three calls of c10d, eight parameters eight copies from a bucket into `.grad`. `seen.export_chrome_trace(path)` would give a timeline for [ui.perfetto.dev](https://ui.perfetto.dev); `wrapped.trace.save(path)` writes ours for the same page.

# %% id="06-c6559d"
def window(job, step=2):
    """The step's backward pass on rank 0, and the calls that rank 0 made in this step."""
    spans = [s for s in job.trace.spans if s.rank == 0]
    forward, backward = spans[2 * step : 2 * step + 2]
    following = spans[2 * step + 2].start
    events = [e for e in job.trace.of(0) if forward.start < e.issued < following]
    return (forward.start, following), backward, events

between, backward, events = window(hand)
assert len(events) == 8 and all(e.issued > backward.end for e in events)
draw.timeline(hand, between=between,
              caption="By hand: eight calls, one after the other, and all of them after backward.")

# %% id="06-5bd03a"
between, backward, events = window(wrapped)
assert len(events) == 3 and events[0].issued < backward.end
draw.timeline(wrapped, between=between,
              caption="DDP: three buckets; the first is under way while backward goes on.")

# %% id="06-2f6f93"
import os

from torch.profiler import ProfilerActivity, profile

os.environ["KINETO_LOG_LEVEL"] = "99"  # or the profiler tells us that it finds no GPU

def profiled():
    ddp = DistributedDataParallel(network(), bucket_cap_mb=1)
    for _ in range(2):
        loss_of(ddp, 64).backward()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        loss_of(ddp, 64).backward()
    words = ("DistributedData", "c10d::", "gloo:", "reducer::")
    return {e.key: e.count for e in seen.key_averages() if any(word in e.key for word in words)}

counted = run(profiled, world_size=2).results[0]
print("\n".join(f"{count:>3} × {name}" for name, count in counted.items()))
assert counted["c10d::allreduce_"] == 3
assert [count for name, count in counted.items() if "copy_bucket_to_grad" in name] == [8]

# %% [markdown] id="06-39e931"
# On two cores the overlap saves little, because gloo itself needs a core to add up. On GPUs, where other hardware moves the bytes, it can hide most of the communication (Li and others, 2020). The trace is what you look at when you wonder whether it does.
#
# ## Who draws which samples
#
# Each rank needs a share of the data, another one in each epoch. `DistributedSampler` shuffles **all** indices, the same way on every rank, and hands out every *n*-th. The shuffle is drawn from `seed + epoch`. The sampler cannot see that an epoch has ended; `set_epoch` tells it. Forget it and nothing fails: every epoch repeats the first one's order.
#
# Shares have equal length, because every rank has to take the same number of steps. Ten samples on four ranks make twelve draws: two are *padding*, drawn twice. For training that hardly matters. For an accuracy it does: count over shares without padding.

# %% id="06-96b6cd"
from torch.utils.data import DataLoader, DistributedSampler

def share(rank, epoch):
    sampler = DistributedSampler(range(10), num_replicas=4, rank=rank)
    sampler.set_epoch(epoch)
    return list(sampler)

shares = [{f"epoch {epoch}": share(rank, epoch) for epoch in (0, 1)} for rank in range(4)]
drawn = [sample for mine in shares for sample in mine["epoch 0"]]
assert len(drawn) == 12 and set(drawn) == set(range(10))
assert {sample for sample in drawn if drawn.count(sample) == 2} == {1, 4}
draw.values(shares, caption="A row for each rank: its share of samples 0 to 9 in two epochs. The "
            "colour is that of the rank which drew a sample in epoch 0; 1 and 4, drawn twice, "
            "have none.")

# %% [markdown] id="06-9669ee"
# ## Your turn: train_ddp
#
# **Required · 06.1 · difficulty ●●○ · about 20 minutes**
#
# Everything so far in one function: a model under DDP, a sampler, the loop, and numbers that are true for all ranks.
#
# **Goal.** Any small model that turns a batch of images of shape (B, 1, 8, 8) into ten logits, trained with cross-entropy. After each epoch two numbers, the same on every rank: the mean loss over all samples drawn in it, and the accuracy of the weights at its end, over the whole dataset, each sample counted once. **Budget:** each step reduces the gradients once, in buckets.
#
# The check plays tiny datasets on 1 to 8 ranks and watches what your model is shown; it does not ask how well it learns.
#
# <details>
# <summary>Hint: three traps</summary>
#
# A loss that `cross_entropy` returns is the mean of its batch, and the last batch may be smaller. The sampler for training pads; `dataset[rank::world_size]` does not. And add up counts first, over all ranks; divide once, at the end.
#
# </details>

# %% exercise="train_ddp" role="answer" points=10 required=true difficulty=2
def train_ddp(dataset, epochs: int, batch_size: int, seed: int) -> dict:
    """Train a classifier under DistributedDataParallel; every rank calls it with equal arguments.

    Args:
        dataset: a TensorDataset of images, float32 of shape (N, 1, 8, 8), and labels from 0 to 9,
            int64 of shape (N,), N at least the number of ranks. Each rank has all of it, and
            trains on its share.
        epochs: how often to go through the dataset, each time in another order, 1 or more.
        batch_size: samples in a batch of one rank, as DataLoader means it; the last one of an
            epoch may be smaller, or left out as by drop_last. (Dividing batch_size by the number
            of ranks is accepted as well.)
        seed: of the weights and of the order of the samples: the same seed, the same training.

    Returns:
        {"loss": [...], "accuracy": [...]}, a float for each epoch, the same on all ranks:
        the mean cross-entropy over the samples drawn in it, at the moment when they were drawn,
        and the part of the dataset that the model recognises at its end.

    Works on course_lib's device(); loads data in this process (num_workers=0).
    """
    ### BEGIN SOLUTION
    torch.manual_seed(seed)
    here = device()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(here)
    ddp = DistributedDataParallel(net)
    sgd = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    order = DistributedSampler(dataset, seed=seed)
    batches = DataLoader(dataset, batch_size, sampler=order)
    history = {"loss": [], "accuracy": []}
    for number in range(epochs):
        order.set_epoch(number)
        counts = torch.zeros(3, device=here)  # loss, samples drawn, samples recognised
        for pixels, digits in batches:
            pixels, digits = pixels.to(here), digits.to(here)
            losses = nn.functional.cross_entropy(ddp(pixels), digits, reduction="none")
            sgd.zero_grad()
            losses.mean().backward()
            sgd.step()
            counts[0] += losses.detach().sum()
            counts[1] += len(digits)
        with torch.no_grad():
            pixels, digits = dataset[dist.get_rank() :: dist.get_world_size()]
            counts[2] = (ddp(pixels.to(here)).argmax(1) == digits.to(here)).sum()
        dist.all_reduce(counts)
        loss, drawn, recognised = counts.tolist()
        history["loss"].append(loss / drawn)
        history["accuracy"].append(recognised / len(dataset))
    return history
    ### END SOLUTION

# %% exercise="train_ddp" role="try"
trained = run(train_ddp, load_digits(), 4, 32, 0, world_size=2).results
assert trained[0] == trained[1], "the two ranks report different numbers"
draw.lines({"loss": (range(4), trained[0]["loss"]), "accuracy": (range(4), trained[0]["accuracy"])},
           xlabel="epoch", ylabel="", caption="Your training on two ranks: loss and accuracy "
           "by epoch.")

# %% exercise="train_ddp" role="check"
check(train_ddp)

# %% [markdown] id="06-4b8bdd"
# ## The same training on 1, 2 and 4 ranks
#
# Beside the lessons lies [jobs/train.py](../../jobs/train.py), a training script as you would write one for a cluster: plain PyTorch, started by `torchrun`. (It is one solution of the exercise; look into it after your own.) A file can be imported, so its functions run in our cells as well.
#
# `batch_size` is that of all ranks together here, 64, so each rank takes 64/n samples at a time and the curves can be compared. On one and two ranks the batches even hold the same samples. Four ranks have to pad 1,442 samples to 1,444, which shifts every batch a little. What is asserted: the same accuracy on all ranks of a run, and at least 97% of the test digits for each number of ranks.

# %% id="06-e75ebc"
import sys
from pathlib import Path

import course_lib

folder = Path(course_lib.__file__).parents[1] / "jobs"
sys.path.insert(0, str(folder))
import train as script

def training(epochs=5, batch_size=64):
    digits, here = load_digits(), device()
    sampler = DistributedSampler(digits)
    loader = DataLoader(digits, batch_size // dist.get_world_size(), sampler=sampler)
    torch.manual_seed(0)
    ddp = DistributedDataParallel(script.digit_model().to(here))
    adam, losses = torch.optim.Adam(ddp.parameters(), lr=0.01), []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        losses.append(script.train_epoch(ddp, adam, loader, here))
    return losses, script.accuracy(ddp, load_digits(train=False), here)

assert len(load_digits()) == 1442 and 4 * len(DistributedSampler(load_digits(), 4, 0)) == 1444

# %% id="06-ec0293"
curves = {}
for n in (1, 2, 4):
    results = run(training, world_size=n).results
    assert results == [results[0]] * n and results[0][1] >= 0.97
    curves[f"ranks: {n}"] = (range(5), results[0][0])
draw.lines(curves, "epoch", "mean loss", caption="1, 2 and 4 ranks: to the eye one curve.")

# %% [markdown] id="06-ad2b1b"
# ## Accumulate: several batches, one message
#
# If a batch does not fit into memory, take it in *micro-batches*: `backward()` adds to `.grad`, and one step follows the last of them. Under DDP each `backward()` also reduces every bucket. All of these messages but the last are wasted: what was added up locally could have waited.
#
# Inside `with ddp.no_sync():` gradients stay on their rank. What counts is the **forward** pass: it settles whether the backward pass that belongs to it will reduce. The first pair outside reduces everything that has been gathered.
#
# **Predict.** Four micro-batches, all but the last one in `no_sync`. By what factor do the bytes of a step shrink?

# %% id="06-78b90a"
guess = None

# %% id="06-2ced73"
def gather(quiet, micro_batches=4):
    ddp = DistributedDataParallel(network())
    for number in range(1, micro_batches + 1):
        if quiet and number < micro_batches:
            with ddp.no_sync():
                (loss_of(ddp, 16) / micro_batches).backward()
        else:
            (loss_of(ddp, 16) / micro_batches).backward()

# %% id="06-951fb0"
traces = [run(gather, quiet, world_size=2).trace for quiet in (False, True)]
loud, quiet = (sum(e.nbytes for e in trace.of(0) if e.op == "all_reduce") for trace in traces)
print(f"your guess: {guess}   recorded: {loud // quiet}")
assert (loud, quiet) == (4 * S, S)
draw.bars({"all of them reduce": loud / 1e6, "no_sync but for the last": quiet / 1e6}, unit="MB",
          exact=True, caption="What rank 0 hands to all_reduce in a step of four micro-batches.")

# %% [markdown] id="06-f6f2b0"
# ## If you like: accumulate_step
#
# **Optional · 06.2 · difficulty ●●○ · about 15 minutes**
#
# Accumulation with *clipping*: where the gradient is longer than `max_norm`, it is scaled to that length. The norm has to be that of the average. After the last backward every rank holds the average, so `torch.nn.utils.clip_grad_norm_` computes the same norm everywhere, without a message. Before it, a rank would measure a gradient of its own. (With sharded parameters, FSDP, that is no longer so.)
#
# **Goal.** One step on all micro-batches of all ranks, as if they were one batch. **Budget:** the gradients are reduced once. *Sturdy* adds one rank, eight and more, a single micro-batch, float64, a frozen layer, and gradients left over from before.
#
# <details>
# <summary>Hint: what each micro-batch adds</summary>
#
# The gradient of a mean over k equal parts is the sum of k gradients, each divided by k. DDP divides by the number of ranks, and by nothing else. Which backward is the last one, so that its forward must stand outside `no_sync`? The loss that you return has to travel, too: DDP averages gradients only.
#
# </details>

# %% exercise="accumulate_step" role="answer" points=5 required=false difficulty=2
def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    """One optimizer step with the gradient of all micro-batches of all ranks; every rank calls it.

    Args:
        ddp_model: a model under DistributedDataParallel, as ready for the next step afterwards;
            its output are logits (B, classes).
        optimizer: of all its parameters. Gradients left over from before are ignored.
        micro_batches: a list of (inputs, targets), one or more, all of one size, and as many on
            every rank.
        max_norm: the gradient of the mean cross-entropy over all micro-batches of all ranks is
            scaled down to this norm where it is longer, as by torch.nn.utils.clip_grad_norm_.

    Returns:
        The mean cross-entropy over all micro-batches of all ranks, before the step, to the digits
        of float32. Losses are finite.
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
# **Predict:** rank 0 has three batches, rank 1 has two. Rank 1 leaves its loop. What does rank 0 do?
#
# We break it in the simulator. DDP waits in C++, where `run` cannot look inside: there you would read, after the whole timeout, that a rank did not return. `simulate` knows at once that nobody is left to answer.
#
# The sampler's padding prevents this. Where the number of batches is not known beforehand (streams, filters), `Join` helps: a rank that has run out answers the collectives of the others with zeros until all have ended. The price is small `all_reduce` calls of 4 bytes, two before each forward pass and one at the end, by which the ranks find out who is still there. The first cell leaves `Join` switched off, the second one switches it on.

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

# %% id="06-4f3ee3"
job = run(uneven, True, world_size=2)
questions = [e for e in job.trace.of(0) if e.op == "all_reduce" and e.nbytes == 4]
print("batches by rank:", job.results, "  small all_reduce calls of rank 0:", len(questions))
assert job.results == [3, 2] and len(questions) == 2 * 3 + 1

# %% [markdown] id="06-42636d"
# ## Half the digits, half the bytes?
#
# AMP, automatic mixed precision, computes the forward pass in bfloat16 or float16 inside `torch.autocast`. The weights stay float32, so their gradients do, and DDP moves as many bytes as before. With float16 a `GradScaler` is needed: unscale after the last backward, before clipping; every rank sees the same averaged gradient, so all skip the same steps.
#
# To shrink the messages, tell DDP what to do with a bucket, by a *communication hook*. The one in the cell rounds it to bfloat16 for the way. It is no longer the same training: less is sent than was computed.
#
# ## What else changes when there are many of you
#
# **Seeds.** Weights come from rank 0. The sampler's seed has to be the same on all ranks; those of dropout and augmentation should differ, or all ranks drop the same units: `torch.manual_seed(seed + rank)` after the model is made.
#
# **BatchNorm** uses the statistics of the rank's own samples. DDP broadcasts the running ones from rank 0 before each forward pass; nobody averages them. `nn.SyncBatchNorm.convert_sync_batchnorm(model)` computes them over all ranks. It works on GPUs only, so this lesson has no cell for it.
#
# **Logging.** Print on rank 0. But let **all** ranks compute what is printed: a collective inside `if rank == 0:` waits for ever.
#
# **Saving.** All ranks hold the same weights, so one writes. It writes to another name first and renames: a job that is killed halfway leaves the old file whole. A barrier keeps the others from reading too early. **Loading** is for everybody, each to its own device: `map_location`, or eight ranks load onto GPU 0, from which the file was written. Save `ddp.module.state_dict()`, so that the file opens without DDP, too. The second cell prints the script's two functions.

# %% id="06-e6e5f0"
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

def first_step(kind):
    ddp = DistributedDataParallel(network())
    if kind == "bfloat16 for the way":
        ddp.register_comm_hook(None, bf16_compress_hook)
    with torch.autocast(device().type, torch.bfloat16, enabled=kind == "autocast"):
        loss = loss_of(ddp, 32)
    loss.backward()

for kind, expected in (("float32", S), ("autocast", S), ("bfloat16 for the way", S // 2)):
    events = run(first_step, kind, world_size=2).trace.of(0)
    (event,) = [e for e in events if e.op == "all_reduce"]
    print(f"{kind:<22}{event.dtype:<10}{event.nbytes:>10,} bytes")
    assert event.nbytes == expected

# %% id="06-f2020d"
import inspect

print(inspect.getsource(script.save))
print(inspect.getsource(script.load))

# %% [markdown] id="06-36e182"
# ## Out of the notebook
#
# `torchrun` starts the ranks; the file does the rest. The first cell is `torchrun --standalone --nproc-per-node=2 train.py --epochs=2`, as you would type it in `jobs/`. Two things in the file are there because it is no longer a notebook: it chooses GPU and NCCL if there is a GPU for every local rank, and otherwise gloo; and it goes on from its checkpoint if it finds one.
#
# On several machines you start one torchrun on each, the *agent* of that machine, all with the same words. They have to find one another:
#
# * `--rdzv-endpoint=host:port` is the meeting point. The agent that runs on this host opens a store there, the others come to it;
# * `--rdzv-backend=c10d` says that the meeting point is a plain store of PyTorch's own; nothing has to be installed or started before;
# * `--rdzv-id` is the job's name, so that two jobs that share a meeting point do not mix.
#
# When `--nnodes` agents have come, they agree on who gives out which ranks. The second cell starts two agents on this machine, each with one rank: for the ranks it looks as if there were two machines. The job goes on where the last one stopped. Both cells take a while: each agent and each rank is a Python that imports torch anew.

# %% id="06-e4f8c6"
import subprocess
import tempfile

files = tempfile.TemporaryDirectory()
environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",  # on CPUs
                            "TMPDIR": files.name}

def torchrun(options, epochs):
    """The command line of one agent."""
    return [sys.executable, "-m", "torch.distributed.run", *options.split(),
            str(folder / "train.py"), f"--epochs={epochs}", f"--checkpoint={files.name}/digits.pt"]

job = subprocess.run(torchrun("--standalone --nproc-per-node=2", epochs=2), env=environment,
                     capture_output=True, text=True)
assert job.returncode == 0, job.stderr
accuracy = float(job.stdout.split()[-1])
assert job.stdout.startswith("2 ranks, gloo") and accuracy >= 0.9
print("\n".join(line.split("  loss")[0] for line in job.stdout.splitlines()[:3]))
print(f"loaded on all ranks: test accuracy ~{accuracy:.3f}")

# %% id="06-ddbe72"
import socket

with socket.create_server(("127.0.0.1", 0)) as probe:
    port = probe.getsockname()[1]  # one that is free
options = f"""--nnodes=2 --nproc-per-node=1 --rdzv-id=digits --rdzv-backend=c10d
              --rdzv-endpoint=127.0.0.1:{port} --local-addr=127.0.0.1"""
piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
agents = [subprocess.Popen(torchrun(options, epochs=4), env=environment, **piped) for _ in range(2)]
try:
    answers = [agent.communicate(timeout=100) for agent in agents]
finally:
    for agent in agents:
        agent.terminate()  # one that still runs takes its rank with it
    files.cleanup()  # the first cell makes it anew
assert [agent.returncode for agent in agents] == [0, 0], answers
said = "".join(out for out, _ in answers)
accuracy = float(said.split()[-1])
assert accuracy >= 0.97 and "goes on from digits.pt after epoch 1" in said
print("\n".join(line.split("  loss")[0] for line in said.splitlines()[:4]))
print(f"loaded on all ranks: test accuracy ~{accuracy:.3f}")

# %% [markdown] id="06-e61b07"
# The same two lines, written for whoever gives out the machines: [jobs/train.sbatch](../../jobs/train.sbatch) lets Slurm's `srun` start one agent a node, and takes the first node as endpoint. [jobs/train.yaml](../../jobs/train.yaml) is an Indexed Job of Kubernetes with a headless Service, which gives the first pod a name to meet at. Kubeflow's TrainJob writes such a file for you.
#
# ## On GPUs
#
# `run(training, backend="nccl")` runs the cells above with one rank per GPU: they ask `device()`, which is the CPU under gloo. `make gpu` goes through the exercises on NCCL and measures bandwidth, scaling and overlap. **Nothing on this page was measured on a GPU.**
#
# | | `nn.DataParallel` | `DistributedDataParallel` |
# |---|---|---|
# | processes | one, a thread for each GPU, one interpreter lock | one per GPU |
# | each step | copies the model to all GPUs, gathers outputs on one | reduces gradients, nothing else |
# | machines | one | any number |
#
# PyTorch recommends the second also for one machine.
#
# | TensorFlow's `tf.distribute` | in PyTorch |
# |---|---|
# | `MirroredStrategy` | DDP on one machine: `torchrun --standalone` |
# | `MultiWorkerMirroredStrategy`, `TF_CONFIG` | DDP on several: torchrun's rendezvous |
# | `ParameterServerStrategy` | no counterpart that is developed; RPC is in maintenance (lesson 05) |
# | `TPUStrategy` | PyTorch/XLA |
# | `experimental_distribute_dataset` | `DistributedSampler` |
#
# ## Roads not taken
#
# * **`find_unused_parameters=True`** lets DDP cope with parameters that a step did not use, for a walk through the graph in each step. Without it DDP raises in the next forward pass.
# * **`gradient_as_bucket_view=True`** lets gradients live in the buckets: one copy of S bytes less.
# * **FSDP** (`fully_shard`) divides weights, gradients and optimizer state instead of repeating them: for models that do not fit on one GPU.
# * **Accelerate, Lightning, Composer** wrap what you have seen here.
#
# ## What you can do now
#
# * ☑ wrap a model, and read in its trace the start-up, the buckets and the overlap;
# * ☑ train and evaluate so that every rank reports the same, exact numbers;
# * ☑ accumulate with `no_sync` and clip the right gradient;
# * ☑ get along with uneven data, mixed precision, BatchNorm, seeds and checkpoints;
# * ☑ start the same training with torchrun, on one machine and on several.
#
# **That was the core course**: from processes that know their number to a job on a cluster. Read again how it began, in [lesson 00](00_hello_ranks.ipynb).
#
# ## Sources
#
# * PyTorch: [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html) (`no_sync`, buckets, hooks) · [DDP notes](https://docs.pytorch.org/docs/stable/notes/ddp.html) (its design) · [DistributedSampler](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler) · [Join](https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html) · [Communication hooks](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html) · [SyncBatchNorm](https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html) · [AMP](https://docs.pytorch.org/docs/stable/amp.html) · [torch.profiler](https://docs.pytorch.org/docs/stable/profiler.html) · [torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) · [DataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html) (the recommendation)
# * S. Li and others, *PyTorch Distributed: Experiences on Accelerating Data Parallel Training*, VLDB 2020, [doi:10.14778/3415478.3415530](https://doi.org/10.14778/3415478.3415530)
# * TensorFlow: [Distributed training](https://www.tensorflow.org/guide/distributed_training) · Slurm: [srun](https://slurm.schedmd.com/srun.html) · Kubernetes: [Indexed Job](https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode) · Kubeflow: [TrainJob](https://www.kubeflow.org/docs/components/trainer/user-guides/pytorch/)
# * Roads not taken: [FSDP](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) · [PyTorch/XLA](https://docs.pytorch.org/xla/) · [Accelerate](https://huggingface.co/docs/accelerate) · [Lightning](https://lightning.ai/docs/pytorch/stable/) · [Composer](https://docs.mosaicml.com/projects/composer/)
# * The digits: E. Alpaydin, C. Kaynak, UCI Machine Learning Repository, 1998, [doi:10.24432/C50P49](https://doi.org/10.24432/C50P49), CC BY 4.0
