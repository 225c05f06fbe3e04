# %% [markdown] id="05-5e652f"
# # Average gradients by hand
#
# **Train one model on many ranks, and prove that it is the same model.**
#
# ![The largest difference between the weights of four ranks and those of one process, step by step, on a logarithmic scale: about a millionth in float32, and hundreds of millions of times smaller in float64](../../figures/05_gradient_averaging.png)
#
# *The end of this lesson's first half: how far the weights of four ranks are from those of one process, step by step. The difference is rounding: in float64, with twice as many digits, it almost vanishes.*
#
# | | |
# |---|---|
# | **Do** | train on the digits by hand, with 1, 2 and 4 ranks; average gradients, start alike, take a step on batches of any size; count what a parameter server sends |
# | **Learn** | why averaging gradients trains one model and not four; when the average is wrong; what becomes of the learning rate; strong and weak scaling |
# | **Need** | [lesson 04](04_ring_all_reduce.ipynb): `all_reduce`, and what it costs |
# | **Time** | about 60 minutes with the required exercise, 105 with the three optional ones as well |
#
# ## The problem in one process
#
# Take four samples and a model with a single weight: *w·x* should be 2*x*, for *x* = 1, 2, 3, 4, and we start at *w* = 0. The loss is the mean of the squared errors, (*w·x* − 2*x*)². Its gradient for one sample is 2(*w·x* − 2*x*)·*x*. At *w* = 0 that is −4*x*²: −4, −16, −36 and −64. Their mean, **−30**, is our reference.
#
# Now divide the samples between two ranks. Each computes the mean over its own samples: −10 over the first two, −50 over the last two. The mean of these two means is −30 again. A gradient is a mean over samples, and the mean of the means of *equal* parts is the mean of all. All of data parallelism rests on that sentence.
#
# **Predict.** Rank 0 gets one sample, and rank 1 the other three. What is the mean of their two means now?

# %% id="05-5683b6"
import torch
import torch.distributed as dist
from torch import nn
from course_lib import Deadlock, Network, check, compute, draw, expect, load_digits, run, simulate

images, labels = load_digits().tensors
test_images, test_labels = load_digits(train=False).tensors

x = torch.tensor([1.0, 2.0, 3.0, 4.0])

def gradient(x):
    w = torch.zeros(1, requires_grad=True)
    ((w * x - 2 * x) ** 2).mean().backward()
    return w.grad.item()

guess = None

# %% id="05-45b523"
even, uneven = ([gradient(x[:k]), gradient(x[k:])] for k in (2, 1))
print("one process:", gradient(x), "  even parts:", even, "  their mean:", sum(even) / 2)
print(f"your guess: {guess}   uneven parts: mean of the means {sum(uneven) / 2:.2f}, "
      f"weighted by samples {(1 * uneven[0] + 3 * uneven[1]) / 4:.2f}")
assert gradient(x) == sum(even) / 2 == -30 and even == [-10, -50]
assert round(sum(uneven) / 2, 2) == -21.33 and round(uneven[1], 2) == -38.67

# %% [markdown] id="05-d34e50"
# One sample out of four made up half of the mean. Weighted by the number of samples, (1·(−4) + 3·(−38.67)) / 4, the mean is right again. We begin with equal parts; uneven ones have an exercise of their own below.
#
# ## Synchronous SGD
#
# In *data parallelism* every rank holds the whole model and takes a part of every batch:
#
# ```text
#                  one batch
# ┌─────────┬─────────┬─────────┬─────────┐
# │ rank 0  │ rank 1  │ rank 2  │ rank 3  │    forward and backward, each on its own part
# └────┬────┴────┬────┴────┬────┴────┬────┘
#      └─────────┴─ all_reduce ──────┘         replaces each gradient by the mean
# ┌────┴────┬────┴────┬────┴────┬────┴────┐
# │  step   │  step   │  step   │  step   │    with the same gradient
# └─────────┴─────────┴─────────┴─────────┘
# ```
#
# Weights never travel. They stay equal by induction: **equal weights before the step, equal gradients, equal steps, so equal weights after it.** This takes an equal start, and an optimizer whose step depends only on weights, gradients and its own state. For the result to equal that of one process, the parts must also be equally large and together be that process's batch, with no sample in two of them. The price is that in every step all ranks wait for the slowest; hence *synchronous*.
#
# To divide a batch, every rank draws the same order of all images, from a seed that is the epoch's number, and takes its own block of each batch. No message is needed, because every rank knows the whole plan. (Classic tutorials cut the dataset into one piece per rank before training begins. A rank then never sees the rest.)

# %% id="05-eeb606"
def batches(epoch, size):
    """Images shuffled alike on every rank, in batches of one size; a rest is left out."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
    return order[: len(order) // size * size].split(size)

def my_part(batch):
    return batch.tensor_split(dist.get_world_size())[dist.get_rank()]

# %% id="05-f99d56"
parts = run(lambda: my_part(batches(epoch=0, size=12)[0])).results
assert torch.equal(torch.cat(parts), batches(0, 12)[0])
draw.values(parts, caption="A batch of 12: three images per rank, by their numbers. Together they "
            "are the batch that one process would take.")

# %% [markdown] id="05-b01fc9"
# ## The training loop
#
# The model is a small convolutional network with 5,450 parameters, trained by SGD with momentum on 1,442 digits. Compare `train` with a loop for one device. It asks for its part of the batch; it shares the gradients between `backward()` and `step()`; and at the end it averages the losses that it has collected. The rest is as you know it.
#
# `share_gradients` uses torch's own averaging, `ReduceOp.AVG`, with one call per parameter. It relies on every parameter having a gradient in every step, as in this model. Your own version will not rely on it.
#
# The last of the three cells runs `train` on 1, 2 and 4 ranks. The run with one rank is the *twin*: the same program in a single process, which takes the whole batch. If data parallelism does what it claims, more ranks must give the twin's curve and accuracy, except for rounding. The cell asserts at least 97% on digits that the model has never seen, and a curve that stays within a ten-thousandth of the twin's over 72 steps. It takes about a quarter of a minute, and prints a line after each run.

# %% id="05-33fc05"
from collections import OrderedDict

def make_model(dtype=torch.float32):
    torch.manual_seed(0)  # an equal start
    layers = OrderedDict(conv=nn.Conv2d(1, 32, 3, padding=1), relu=nn.ReLU(), pool=nn.MaxPool2d(2))
    layers.update(flat=nn.Flatten(), linear=nn.Linear(512, 10))
    return nn.Sequential(layers).to(dtype)

def share_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)

def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)

# %% id="05-48d929"
def train(epochs=6, size=120, dtype=torch.float32, share=share_gradients, method=sgd):
    model = make_model(dtype)
    opt = method(model.parameters())
    losses, weights = [], []
    for epoch in range(epochs):
        for batch in batches(epoch, size):
            mine = my_part(batch)
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(images[mine].to(dtype)), labels[mine])
            loss.backward()
            share(model)
            opt.step()
            losses.append(loss.detach())
            weights.append({name: p.detach().clone() for name, p in model.named_parameters()})
    losses = torch.stack(losses)
    dist.all_reduce(losses, op=dist.ReduceOp.AVG)
    correct = model(test_images.to(dtype)).argmax(1) == test_labels
    return {"loss": losses.tolist(), "weights": weights, "accuracy": correct.float().mean().item()}

# %% id="05-eb5974"
runs, curve = {}, {}
for n in (1, 2, 4):
    runs[n] = run(train, world_size=n)
    curve[n] = torch.tensor(runs[n].results[0]["loss"])
    accuracies = [result["accuracy"] for result in runs[n].results]
    apart = (curve[n] - curve[1]).abs().max()
    assert min(accuracies) == max(accuracies) >= 0.97 and apart < 1e-4
    print(f"ranks: {n}   accuracy: ~{100 * accuracies[0]:.1f}%   curve differs by: ~{apart:.0e}")
assert len(images) == 1442 and len(curve[1]) == 72  # steps
draw.lines({"four ranks": (range(72), curve[4])}, xlabel="training step", ylabel="loss",
           caption="Four ranks, each with a quarter of every batch. The twin's curve is not drawn: "
           "it would lie on this one.")

# %% [markdown] id="05-38e749"
# ## Prove it: rounding, not a bug
#
# The two curves are close, but not equal. Four ranks add in a different order from one process, and sums of floats depend on that order. So the difference may be rounding. Or it may be a small mistake that will grow. To find out, change one thing: the number of digits. Float64 carries 29 more binary digits than float32. A rounding error shrinks by a factor of about 2²⁹, or 500 million. A bug does not care how many digits you carry.
#
# The cell trains in float64, too, on one rank and on four. After each step it compares the weights on rank 3 with those of the twin. The picture shows the largest difference between two weights, as a fraction of the largest weight in the same tensor. At first it grows, since each step starts from weights that already differ a little.

# %% id="05-fab620"
def difference(job, twin):
    pairs = zip(job.results[-1]["weights"], twin.results[0]["weights"], strict=True)
    return [max(((a[name] - b[name]).abs().max() / b[name].abs().max()).item() for name in a)
            for a, b in pairs]

double = {}
for n in (1, 4):
    double[n] = run(lambda: train(dtype=torch.float64), world_size=n)
    print(f"trained in float64, ranks: {n}")
differences = {"float32": difference(runs[4], runs[1]),
               "float64": difference(double[4], double[1])}
single_digits, twice_the_digits = map(max, differences.values())
assert differences["float32"][0] < 1e-6 and twice_the_digits < 1e-10
assert 1e7 < single_digits / twice_the_digits < 1e10
draw.lines({dtype: (range(1, 73), row) for dtype, row in differences.items()}, logy=True,
           xlabel="training step", ylabel="largest relative difference",
           caption="Weights of rank 3 of four against the twin's. In float64 the difference is "
           "hundreds of millions of times smaller: it was rounding.")

# %% [markdown] id="05-1266d2"
# This is the test to remember: whenever distributed code should equal undistributed code, run both in float64 for a few steps and compare the weights.
#
# ## Your turn: average_gradients
#
# **Required · 05.1 · difficulty ●●○ · about 15 minutes**
#
# `share_gradients` takes for granted that every gradient exists. A rank lacks one where its part of the batch did not use a layer, and frozen parameters have none at all.
#
# **Goal.** Afterwards every rank's `.grad` holds the mean over *all* ranks, where a missing gradient counts as zero. A rank that had none has one now; a gradient that is missing on all ranks may stay None or become zero. Work in place: an existing gradient stays the same tensor object, of the same dtype, because other code may refer to it. (Lesson 06 has a wrapper whose gradients can be views of its own memory.) The model's weights and buffers are not touched. Any pattern of communication will do.
#
# *Core* has 2 to 5 ranks and float32. *Sturdy* adds a single rank, eight and more ranks, other dtypes, and models without parameters.
#
# <details>
# <summary>Hint: who calls what?</summary>
#
# The k-th collective of one rank meets the k-th of the others. So a rank may not leave out a call because it has nothing to contribute. Which contribution changes no sum?
#
# </details>

# %% exercise="average_gradients" role="answer" points=20 required=true difficulty=2
def average_gradients(model: nn.Module) -> None:
    """Replace each trained parameter's gradient by its mean over all ranks, in place.

    Every rank calls it after backward(), with a model of equal structure.

    Args:
        model: its gradients are averaged. A gradient has its parameter's dtype and memory layout,
            the same on all ranks; all_reduce takes it as it is, transposed or not. Where
            ``.grad`` is None on some ranks, it counts as zero there and is the mean afterwards;
            where it is None on all, it may stay None or become zero. An existing ``.grad`` stays
            the same object.
    """
    ### BEGIN SOLUTION
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
    ### END SOLUTION

# %% exercise="average_gradients" role="try"
def one_has_none():
    model, rank = nn.Linear(3, 1, bias=False), dist.get_rank()
    model.weight.grad = None if rank == 2 else torch.full((1, 3), 4.0 * 10**rank)
    average_gradients(model)
    return model.weight.grad[0]

draw.values(run(one_has_none), caption="Rank 2 had none: all should hold (4 + 40 + 0 + 4000) / 4.")

# %% exercise="average_gradients" role="check"
check(average_gradients)

# %% [markdown] id="05-3a418b"
# ## Start alike
#
# `make_model` seeds every rank with the same number, so all ranks start alike. You cannot count on that. If one rank alone loads a checkpoint, or draws one more random number, the models differ before the first step. Equal gradients keep equal models equal; they never make different models equal. The safe way is to send one rank's model to all the others, once. A model is more than its trained parameters: it also has frozen ones, and buffers such as BatchNorm's running means and its counter, an int64.
#
# ### Your turn: broadcast_parameters
#
# **Optional · 05.2 · difficulty ●○○ · about 10 minutes**
#
# **Goal.** Afterwards every rank holds the parameters and buffers of rank `src`, in the same tensor objects as before, because the optimizer refers to those. *Sturdy* adds other dtypes, counters too large for float32, and buffers of every kind.
#
# <details>
# <summary>Hint: what is in a model?</summary>
#
# `model.parameters()` yields the parameters, frozen ones included, and `model.buffers()` all buffers, also those that are not saved. `dist.broadcast` writes in place. `.detach()` gives you a parameter's own memory, and autograd does not watch what is written there.
#
# </details>

# %% exercise="broadcast_parameters" role="answer" points=10 required=false difficulty=1
def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    """Give every rank the parameters, frozen ones too, and the buffers of rank ``src``, in place.

    Every rank calls it, with a model of equal structure and the same ``src``. A tensor may have
    any dtype, and may be transposed, the same on all ranks: ``broadcast`` takes it as it is.
    """
    ### BEGIN SOLUTION
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src)
    ### END SOLUTION

# %% exercise="broadcast_parameters" role="try"
def four_models():
    model, rank = nn.BatchNorm1d(2), dist.get_rank()
    model.load_state_dict({k: torch.full_like(t, rank) for k, t in model.state_dict().items()})
    broadcast_parameters(model, src=2)
    return dict(model.state_dict())

draw.values(run(four_models), caption="BatchNorm on four ranks: every tensor should be rank 2's.")

# %% exercise="broadcast_parameters" role="check"
check(broadcast_parameters)

# %% [markdown] id="05-39ba04"
# ### Your turn: same_everywhere
#
# **Optional · 05.3 · difficulty ●●○ · about 15 minutes**
#
# How would you notice that ranks have drifted apart? The accuracy does not tell, as you will see below. A test of the weights themselves does, and can be called every few hundred steps.
#
# **Goal.** True if every rank holds bit-equal parameters and buffers, False if any differs anywhere, and the same answer on every rank. Bit-equal means that a difference in the last bit counts. *Sturdy* adds a single rank, eight and more ranks, other dtypes, models without any tensor, buffers that are not saved with the model, and NaN: it never equals itself, but the bits of two NaNs can be equal.
#
# <details>
# <summary>Hint: look at bytes</summary>
#
# `t.contiguous().reshape(-1).view(torch.uint8)` shows a tensor's memory as whole numbers from 0 to 255. Beware of sums: two differences can cancel.
#
# </details>

# %% exercise="same_everywhere" role="answer" points=10 required=false difficulty=2
def same_everywhere(model: nn.Module) -> bool:
    """Whether every rank holds bit-equal parameters and buffers: the same answer on every rank.

    Every rank calls it, with a model of equal structure; the model stays as it is.
    """
    ### BEGIN SOLUTION
    alike = True
    for tensor in (*model.parameters(), *model.buffers()):
        mine = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        copies = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(copies, mine)
        alike = alike and all(torch.equal(mine, copy) for copy in copies)
    return alike
    ### END SOLUTION

# %% exercise="same_everywhere" role="try"
def last_bit(changed_on):
    model = nn.BatchNorm1d(1)  # its weight is 1, and 2**-23 is the last bit of a 1 in float32
    model.weight.data += 2**-23 * (dist.get_rank() == changed_on)
    return same_everywhere(model)

for rank in (None, 2):
    print("changed on", "no rank" if rank is None else f"rank {rank}", run(last_bit, rank).results)

# %% exercise="same_everywhere" role="check"
check(same_everywhere)

# %% [markdown] id="05-3a18d5"
# ## Uneven and empty batches
#
# The size of an epoch's last batch is seldom divisible by the number of ranks, and some ranks may get no sample. Averaging the means is then wrong, as it was for the four samples above, where it gave −21.33. The right average follows from the definition of a mean. The global mean is the sum over all samples divided by their number, **g = Σᵣ Σᵢ gᵣᵢ / Σᵣ Bᵣ**, where gᵣᵢ is the gradient of sample *i* on rank *r*, and Bᵣ the number of samples there. An empty batch adds nothing to either sum. Its mean, however, is 0/0, and a single NaN makes the whole sum NaN. And a rank that skips the step leaves the others waiting.
#
# ### Your turn: train_step
#
# **Optional · 05.4 · difficulty ●●● · about 20 minutes**
#
# **Goal.** Take one step, with cross-entropy as the loss. It equals the step of a single process on the union of all ranks' batches. Batches have any sizes; some may be empty, but never all. Gradients left over from before do not count. Every rank returns the same float: the mean loss over all samples. *Sturdy* adds a single rank, eight and more ranks, float64, and models in which a layer is frozen or shared.
#
# <details>
# <summary>Hint: two sums</summary>
#
# `cross_entropy(…, reduction="sum")` of an empty batch is 0, not NaN, and its gradients are zeros. The number of samples is a sum over the ranks, too.
#
# </details>

# %% exercise="train_step" role="answer" points=20 required=false difficulty=3
def train_step(model, optimizer, inputs, targets) -> float:
    """One step, equal to that of a single process on the union of all ranks' batches.

    Every rank calls it, with equal weights and optimizers.

    Args:
        model: without BatchNorm or dropout; every trained parameter takes part in its output.
            Gradients left over from before are ignored.
        optimizer: of all the parameters of this model.
        inputs, targets: this rank's batch, of its own size; empty on some ranks, but not on all.

    Returns:
        The mean cross-entropy over all samples of all ranks, before the step: the same float on
        every rank, correct to float32 precision.
    """
    ### BEGIN SOLUTION
    samples = torch.tensor(len(targets))
    dist.all_reduce(samples)
    optimizer.zero_grad()
    mean = nn.functional.cross_entropy(model(inputs), targets, reduction="sum") / samples
    mean.backward()
    for parameter in model.parameters():
        if parameter.requires_grad:
            dist.all_reduce(parameter.grad)
    optimizer.step()
    mean = mean.detach()
    dist.all_reduce(mean)
    return mean.item()
    ### END SOLUTION

# %% exercise="train_step" role="try"
def two_steps(sizes):
    model, rank = make_model(), dist.get_rank()
    x, y = images[:6].split(sizes)[rank], labels[:6].split(sizes)[rank]
    return [round(train_step(model, sgd(model.parameters()), x, y), 4) for _ in range(2)]

for sizes in ([3, 1, 0, 2], [6]):  # the same six samples on four ranks and in one process
    print(f"{sizes}:", run(two_steps, sizes, world_size=len(sizes)).results)

# %% exercise="train_step" role="check"
check(train_step)

# %% [markdown] id="05-9971da"
# ## What becomes of the learning rate
#
# People rarely add ranks to make each rank's part smaller. They keep the part, and the *global batch* grows: *k* times the ranks, *k* times the batch, one *k*-th of the steps per epoch. With the old learning rate the model then learns less in each epoch. The **linear scaling rule** (Goyal and others, 2017) multiplies the learning rate by *k*, too: as long as the gradient changes little along the way, *k* small steps are nearly the same as one large step with *k* times the rate. The rule is for SGD. For Adam, theory suggests the square root of *k* (Malladi and others, 2022).
#
# Four ranks give the twin's curve, so one rank is enough to try the rule: batches of 32·*k*, six epochs each, plain SGD, and a rate of 0.2 or of 0.2·*k*. The picture shows the mean training loss of the last epoch.
#
# **Predict.** Batches of 32, 64, 128 and 256: with which of them is the scaled rate *worse* than the fixed one?

# %% id="05-7c10f2"
guess = None

# %% id="05-e5d27d"
def last_epoch(k, lr):
    losses = train(6, 32 * k, method=lambda parameters: torch.optim.SGD(parameters, lr))["loss"]
    mean = torch.tensor(losses).view(6, -1)[-1].mean().item()
    print(f"batch {32 * k}, rate {lr:g}: loss ~{mean:.2f}")
    return mean

ks = (1, 2, 4, 8)

def sweep():
    fixed = [last_epoch(k, 0.2) for k in ks]
    return fixed, fixed[:1] + [last_epoch(k, 0.2 * k) for k in ks[1:]]  # for k = 1 the same

fixed, scaled = run(sweep, world_size=1, timeout=300).results[0]
print(f"your guess: {guess}   recorded: {32 * ks[3]}")
assert fixed == sorted(fixed) and max(scaled[:3]) < 0.2 < fixed[1]
assert scaled[2] < fixed[2] / 2 and scaled[3] > fixed[3] and 0.2 * ks[3] == 1.6
sizes = [32 * k for k in ks]
draw.lines({"rate 0.2": (sizes, fixed), "rate 0.2·k": (sizes, scaled)}, xlabel="global batch, 32·k",
           ylabel="training loss, sixth epoch", caption="With the scaled rate the loss hardly "
           "depends on the batch until the rule breaks, at a batch of 256.")

# %% [markdown] id="05-4e5a7a"
# With a fixed rate the loss rises with every doubling of the batch. With the scaled rate it stays below 0.2 up to a batch of 128, where it is less than half of the loss at the fixed rate. At 256, with a rate of 1.6, scaling makes it worse. Where a large rate fails early in training, a *warm-up* may help: begin with the small rate and raise it over the first epochs. In this way the authors of the rule trained on ImageNet with batches of 8,192. Beyond some batch size nothing helps.
#
# ## The road not taken: a parameter server
#
# Before all_reduce took over, one process held the weights: workers sent gradients to it and got new weights back (Dean and others, 2012; Li and others, 2014). In the cell, rank 0 is both the server and a worker. S is the size of the gradient, for our model 4 · 5,450 = 21,800 bytes.
#
# **(n−1)·S** bytes go into the server, and as many come out: with four ranks, 65,400 in each direction. In a ring each rank's link carries 2(n−1)/n·S in each direction: 32,700 bytes. The server's load grows with every worker; the ring's stays below 2·S. The second cell simulates both for a model of 1 MiB on 10 Gb/s Ethernet, and asserts the formulas of lessons 03 and 04: 2(α + (n−1)·S·β) and 2(n−1)(α + S/n·β).

# %% id="05-ff8efe"
def server_step(grad):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        weights = torch.empty_like(grad)
        dist.send(grad, 0)
        dist.recv(weights, 0)
        return
    inboxes = {src: torch.empty_like(grad) for src in range(1, n)}
    for work, src in [(dist.irecv(inbox, src), src) for src, inbox in inboxes.items()]:
        work.wait()
        grad += inboxes[src]
    weights = -0.1 * grad / n  # one step of SGD from weights of zero
    for dst in range(1, n):
        dist.send(weights, dst)

served = run(server_step, torch.ones(5450))
into = sum(message.nbytes for message in served.trace.messages if message.dst == 0)
assert 4 * sum(p.numel() for p in make_model().parameters()) == 4 * 5450 == 21_800
assert into == 3 * 21_800 == 65_400 == 2 * 32_700
draw.traffic(served, caption="Every byte goes into rank 0 or comes out of it; nobody else talks.")

# %% id="05-5651b5"
alpha, beta, nbytes = 25e-6, 1 / 1.25e9, 2**20
network = Network(latency=alpha, bandwidth=1 / beta, collectives="messages")
worlds = (2, 4, 8, 16, 32)

def seconds(step, n):
    return simulate(lambda: step(torch.zeros(nbytes // 4)), world_size=n, network=network).seconds

server, ring = ([seconds(step, n) for n in worlds] for step in (server_step, dist.all_reduce))
for n, star, circle in zip(worlds, server, ring, strict=True):
    assert abs(star / (2 * (alpha + (n - 1) * nbytes * beta)) - 1) < 1e-9
    assert abs(circle / (2 * (n - 1) * (alpha + nbytes / n * beta)) - 1) < 1e-9
times = {"parameter server": server, "ring": ring}
draw.lines({name: (worlds, [1e3 * s for s in took]) for name, took in times.items()}, "ranks",
           "time, ms (simulated)", loglog=True, exact=True, caption="A server's time grows "
           "with n − 1. In a ring no rank sends more than two tensors, however many ranks there "
           "are; its latency grows with n.")

# %% [markdown] id="05-239897"
# Real systems use several servers, each with a share of the weights. With as many servers as workers, the load is that of the ring. A server also offers freedom: workers need not wait for one another, and may come and go. The price is gradients that were computed with old weights. Servers are still in use where a step touches only a few of many weights, as in recommender systems (Liu and others, 2022).
#
# ## Strong and weak scaling
#
# How much do *n* ranks help? There are two questions, with two answers. In both, Tₙ is the time of a step on *n* ranks.
#
# * **Strong scaling** (Amdahl, 1967): the same global batch on more ranks. Efficiency is T₁ / (n·Tₙ).
# * **Weak scaling** (Gustafson, 1988): the same batch *per rank*, so that the work grows with *n*. Efficiency is T₁ / Tₙ.
#
# We simulate, because four processes on one machine share its cores. We assume 25 µs to compute a sample, 256 samples, 1 MiB of gradients, and the network from above.
#
# **Predict.** Eight ranks share the 256 samples. How many times as fast is a step then?

# %% id="05-b1fb08"
def step_time(n, samples):
    def step():
        compute(25e-6 * samples)
        dist.all_reduce(torch.zeros(nbytes // 4))
    return simulate(step, world_size=n, network=network).seconds

worlds = (1, 2, 4, 8, 16, 32)
one = step_time(1, 256)
strong = [one / (n * step_time(n, 256 // n)) for n in worlds]
weak = [one / step_time(n, 256) for n in worlds]
print(f"on 8 ranks: strong {strong[3]:.0%}, weak {weak[3]:.0%}")
eight, busy = step_time(8, 32), 25e-6 * 32
assert [round(1e3 * t, 1) for t in (one, eight, busy, eight - busy)] == [6.4, 2.6, 0.8, 1.8]
draw.lines({"weak: 256 samples per rank": (worlds, weak), "strong: 256 in all": (worlds, strong)},
           xlabel="ranks", ylabel="efficiency (simulated)", logx=True, exact=True, ymin=0,
           caption="Both send the same bytes per step; in strong scaling each rank has less "
           "and less to compute before it sends them.")

# %% [markdown] id="05-edaea6"
# Eight ranks finish the same batch in 2.6 ms instead of 6.4. That is less than three times as fast, since each computes for 0.8 ms and communicates for 1.8. Weak scaling looks better, but has a price: the global batch grows, and the model may learn less per epoch. So if you report scaling, say which of the two you mean.
#
# ## Break it
#
# **First**, the guard that everybody writes: `if p.grad is not None`. Here only rank 0's samples use the second layer. Rank 0 has four gradients to share, the others have two. (In a loop over many steps, rank 0's third call meets the others' first call of the *next* step. If the shapes are alike, the ranks silently average one layer's gradient with another's.)
#
# **Second**, a bug that does not keep the model from learning. `share_weights` averages the parameter instead of its gradient: one word is different (compare [picotron#39](https://github.com/huggingface/picotron/issues/39)). Each rank steps with its own gradient, and the weights are pulled together in the next step.
#
# **Predict.** Does the accuracy show this bug?

# %% id="05-9e84da"
def two_tasks():
    trunk, extra = nn.Linear(4, 4), nn.Linear(4, 1)
    out = trunk(torch.ones(1, 4))
    (extra(out) if dist.get_rank() == 0 else out).sum().backward()
    for p in (*trunk.parameters(), *extra.parameters()):
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)

with expect(Deadlock):
    run(two_tasks)

# %% id="05-05e6d9"
def share_weights(model):
    for p in model.parameters():
        dist.all_reduce(p.data, op=dist.ReduceOp.AVG)

for share, job in {share_gradients: runs[4],
                   share_weights: run(train, 6, 120, torch.float32, share_weights)}.items():
    results = job.results
    first, last = (results[rank]["weights"][-1] for rank in (0, 3))
    apart = max((first[name] - last[name]).abs().max() / last[name].abs().max() for name in first)
    lowest = min(result["accuracy"] for result in results)
    print(f"{share.__name__:<16} lowest accuracy: ~{100 * lowest:.1f}%   "
          f"ranks 0 and 3 differ by: ~{apart:.0e}")
    assert (apart == 0) == (share is share_gradients) and lowest > 0.9

# %% [markdown] id="05-fd4334"
# The accuracy hardly shows it: a few test digits more or fewer can be chance. What shows the bug is that the ranks hold four different models. `same_everywhere` would have said so, and this is why we compared weights, and not only curves.
#
# ## In practice
#
# Nobody writes this loop by hand. `DistributedDataParallel` broadcasts the model when it wraps it, as `broadcast_parameters` does, and averages gradients while `backward()` is still running. It takes the mean of the means, so it is up to you to weight uneven batches. On GPUs the calls are the same; model and data move to `device()`, and `run` gets `backend="nccl"`.
#
# ## More roads not taken
#
# * **Local SGD** averages weights on purpose, but only after many steps, to communicate less (Stich, 2019).
# * **Compressed gradients** put fewer bytes on the wire, and their average is only approximate (Vogels and others, 2019).
# * **`nn.DataParallel`** is one process with a thread per GPU. It is slower, and no longer recommended.
#
# ## What you can do now
#
# * ☑ train one model on many ranks, and prove with float64 that it is the same model;
# * ☑ average gradients even where some are missing, and start alike;
# * ☑ take an exact step on uneven and empty batches;
# * ☑ say how the learning rate depends on the global batch, and where that ends;
# * ☑ count what a parameter server costs, and tell strong from weak scaling.
#
# **Next:** [lesson 06](06_ddp.ipynb) hands this over to DistributedDataParallel, and leaves the notebook for a script.
#
# ## Sources
#
# * P. Goyal and others, *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour*, 2017, [arXiv:1706.02677](https://arxiv.org/abs/1706.02677) · S. Malladi and others, *On the SDEs and Scaling Rules for Adaptive Gradient Algorithms*, NeurIPS 2022, [arXiv:2205.10287](https://arxiv.org/abs/2205.10287)
# * J. Dean and others, *Large Scale Distributed Deep Networks*, NeurIPS 2012 · M. Li and others, *Scaling Distributed Machine Learning with the Parameter Server*, [OSDI 2014](https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu) · Z. Liu and others, *Monolith: Real Time Recommendation System With Collisionless Embedding Table*, 2022, [arXiv:2209.07663](https://arxiv.org/abs/2209.07663) (a parameter server of today)
# * G. M. Amdahl, *Validity of the single processor approach to achieving large scale computing capabilities*, AFIPS 1967, [doi:10.1145/1465482.1465560](https://doi.org/10.1145/1465482.1465560) · J. L. Gustafson, *Reevaluating Amdahl's law*, CACM 31(5), 1988, [doi:10.1145/42411.42415](https://doi.org/10.1145/42411.42415)
# * P. Patarasuk, X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, JPDC 69(2), 2009, [doi:10.1016/j.jpdc.2008.09.002](https://doi.org/10.1016/j.jpdc.2008.09.002) (the ring's bytes)
# * S. U. Stich, *Local SGD Converges Fast and Communicates Little*, ICLR 2019, [arXiv:1805.09767](https://arxiv.org/abs/1805.09767) · T. Vogels, S. P. Karimireddy, M. Jaggi, *PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization*, NeurIPS 2019, [arXiv:1905.13727](https://arxiv.org/abs/1905.13727)
# * PyTorch: [Distributed communication package](https://docs.pytorch.org/docs/stable/distributed.html) · why `nn.DataParallel` left the [overview](https://github.com/pytorch/tutorials/pull/2913) · [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)
# * The digits: E. Alpaydin, C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI Machine Learning Repository, 1998, [doi:10.24432/C50P49](https://doi.org/10.24432/C50P49), CC BY 4.0
