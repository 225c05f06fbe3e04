# %% [markdown] id="07-66b6cc"
# # Move to GPUs
#
# **What changes with NCCL: calls that return before anything has happened, streams that overlap, and a cluster that hangs.**
#
# ![One training step of two modelled GPUs, twice: at first computing rests during each of four reductions; then three of the four run while it computes](../../figures/07_gpus.png)
#
# *Where this goes: the same step twice. On the right three reductions cost no time, because the GPU computes beside them; only the last one adds time.*
#
# | | |
# |---|---|
# | **Do** | time calls that return at once, overlap communication with computation by hand, compare DDP and `fully_shard`, provoke the hangs that only NCCL has, and read the logs of a job that failed |
# | **Learn** | host and streams; what `wait()` orders and what it does not stop; when overlap pays; NCCL's rules about order; what to type when a cluster hangs |
# | **Need** | [lesson 06](06_ddp.ipynb): DDP, its buckets, and `torchrun`. No GPU |
# | **Time** | about 70 minutes with the required exercise, 125 with the optional ones as well |
#
# ## A GPU for everybody
#
# None of this course's numbers were measured on a GPU. What we do know comes from documented rules: how CUDA orders work in streams, and how NCCL orders its calls. Such rules can be *modelled*. `simulate(fn, backend="nccl")` runs your function on ranks with modelled GPUs. Tensors stay on the CPU, values are those of the real collectives, and the clocks are those of a GPU: `compute(s)` stands for a *kernel*, a piece of work for the GPU, of *s* seconds.
#
# In the model a call costs the CPU 5 µs, and a message costs what it did in lesson 03: α + S·β. On an idle GPU, a kernel starts when its call starts. So the times on this page follow from formulas, and cells check them. What the model leaves out is listed at the end.
#
# If you have a GPU, `make gpu` runs the course's exercises on NCCL and writes down what it saw.
#
# ## One GPU, by hand
#
# A program that uses a GPU runs in two places. The *host*, the CPU, runs your Python. A kernel call only puts work into a queue of the GPU, its *stream*, and returns. The GPU takes work from the stream in order, one piece after another.
#
# Take one GPU, and two kernels of 10 ms each. The GPU needs **20 ms** for them. `torch.cuda.synchronize()` makes the host wait until the GPU has finished.
#
# We write it as `torch.get_device_module(device()).synchronize()`, which runs on any device. (`torch.cuda.synchronize` and `torch.cuda.Event` work on modelled GPUs, too.)
#
# **Predict.** What does a stopwatch on the host show after the two calls, without `synchronize`?

# %% id="07-4182af"
import time
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_lib import (Deadlock, Hazard, Mismatch, Network, check, compute, device, draw, expect,
                        run, simulate)

alpha, beta, launch = 1e-5, 1e-9, 5e-6  # s, s/byte, s of the host for each call
on_gpus = partial(simulate, network=Network(latency=alpha, bandwidth=1 / beta), backend="nccl")

# %% id="07-ad9162"
guess = None

# %% id="07-a80add"
def synchronize():
    torch.get_device_module(device()).synchronize()

def two_kernels(wait_for_the_gpu):
    start = time.perf_counter()
    compute(10e-3)
    compute(10e-3)
    if wait_for_the_gpu:
        synchronize()
    return time.perf_counter() - start

[without], [with_it] = (on_gpus(two_kernels, wait, world_size=1).results for wait in (False, True))
print(f"your guess: {guess}   without: {1e6 * without:.0f} µs   with: {1e3 * with_it:.0f} ms")
assert abs(without - 2 * launch) < 1e-12 and abs(with_it - 20e-3) < 1e-12

# %% [markdown] id="07-85d09a"
# Without `synchronize` you have measured how fast Python is: 5 µs for each call. This is the classic mistake in timing GPU code, and the number looks wonderful.
#
# ## What `wait()` does
#
# NCCL's calls are kernels as well. A plain `all_reduce(x)` runs in the *current* stream, the compute stream, like other kernels (up to torch 2.7 it had a stream of its own). With `async_op=True` it runs beside them: each process group has a *communicator* with a stream of its own, where the reduction starts when the compute stream has done all that it was given before. `work.wait()` later makes the compute stream wait for the sum. A profiler shows plain calls among your kernels, and asynchronous ones in a row of their own.
#
# | call | the host | the compute stream |
# |---|---|---|
# | `all_reduce(x)` | goes on | does the reduction itself |
# | `all_reduce(x, async_op=True)` | goes on | goes on |
# | `work.wait()` | goes on | waits for the sum |
# | `x.sum().item()`, `print(x)` | blocks until the number is there | goes on |
# | `dist.barrier()` | blocks until every rank has come | waits, too |
# | `synchronize()` | blocks until all streams are empty | goes on |
#
# Watch the row with `.item()`: a loss that is printed in every step makes the host wait for its GPU each time.

# %% id="07-fc1a63"
def one_step(look):
    x = torch.ones(1_000_000)
    compute(4e-3)
    work = dist.all_reduce(x, async_op=True)
    compute(2e-3)
    work.wait()
    if look:
        assert x[0].item() == dist.get_world_size()
    ready = time.perf_counter()
    compute(1e-3)
    return ready

c_1 = alpha + 4_000_000 * beta  # on two ranks, an all_reduce exchanges the whole tensor once
blind, looking = (on_gpus(one_step, look, world_size=2) for look in (False, True))
assert max(abs(s - c_1 - 4e-3) for s in looking.results) < 2 * launch
print(f"the host reaches the last kernel after {1e6 * blind.results[0]:.0f} µs, or, if it looks "
      f"at a number first, after {1e3 * looking.results[0]:.2f} ms")

# %% id="07-f33fc2"
draw.timeline(blind, caption="The host is done at once. The communicator's stream starts the "
              "reduction when the first kernel is over; the last kernel waits for the sum.")

# %% [markdown] id="07-72d709"
# ## Your turn: all_reduce_seconds
#
# **Required · 07.1 · difficulty ●●○ · about 20 minutes**
#
# **Goal.** Measure how long one `all_reduce` of `x` takes on the GPUs, and return the seconds as a float, the same on every rank to within a few microseconds. The ranks come with work already in their streams, more on some than on others; this work must not be counted. Call `all_reduce` on `x` `repeats` times, one right after the other (plain calls, nothing between them), and return the mean. An untimed *warm-up* call may come first; on real GPUs it must, because a group connects its ranks in its first call. `x` may hold anything afterwards.
#
# *Core* asks for 2 to 5 ranks and tensors of several hundred kilobytes. *Sturdy* adds eight ranks. The check runs on modelled GPUs.
#
# <details>
# <summary>Hint: when may the stopwatch start?</summary>
#
# When all GPUs are idle: yours, and the others'. `synchronize()` waits for your own. `dist.barrier()` is the one collective for which NCCL stops the host as well, until all ranks have come.
#
# </details>
# <details>
# <summary>Hint: events</summary>
#
# `event = torch.cuda.Event(enable_timing=True)` and `event.record()` mark a place in a stream. `start.elapsed_time(end)` answers in *milliseconds*, and only once both have happened.
#
# </details>

# %% exercise="all_reduce_seconds" role="answer" points=10 required=true difficulty=2
def all_reduce_seconds(x: Tensor, repeats: int) -> float:
    """Seconds that one all_reduce of x takes on the GPUs, the mean of repeats calls.

    Every rank calls it, with tensors of one shape and dtype, and with more or less work in its
    stream, which is not counted. Returns the same everywhere, to a few microseconds. x may change.
    """
    ### BEGIN SOLUTION
    dist.all_reduce(x)  # the first call of a group also connects
    dist.barrier()
    torch.get_device_module(x.device).synchronize()  # now every stream is empty, on every rank
    started = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(x)
    torch.get_device_module(x.device).synchronize()
    return (time.perf_counter() - started) / repeats
    ### END SOLUTION

# %% exercise="all_reduce_seconds" role="try"
def timed_behind_work():
    compute(3e-3 * (1 + dist.get_rank()))  # queued before, and not equally long
    return all_reduce_seconds(torch.ones(1_000_000), 5)

print("yours, ms:", [round(1e3 * s, 2) for s in on_gpus(timed_behind_work, world_size=2).results])
print(f"formula:   {1e3 * c_1:.2f} ms")

# %% exercise="all_reduce_seconds" role="check"
check(all_reduce_seconds)

# %% [markdown] id="07-377b1a"
# ## Overlap
#
# Take a model of four layers. Each needs F = 1 ms in the forward pass and B = 2 ms in the backward pass, and each has gradients of 1 MiB; the optimizer takes 0.5 ms. How long is a step on two ranks?
#
# **One after another**, each layer's reduction, one exchange, takes c = α + S·β = 1.059 ms, and computing waits for it: 4 · (F + B + c) + 0.5 = **16.73 ms**.
#
# **Overlapped**, the reductions run on the communicator's stream while the next layer computes. Two streams work side by side, and the longer one decides:
#
# $$\text{step} = 4F+\max(4B+c,\;B+4c)+0.5$$
#
# If computing is longer (B > c), only the *last* reduction adds time: 4·B + c. If communication is longer, only the *first* backward does: B + 4·c. Here B is larger, and the step takes **13.56 ms**.
#
# **Predict.** The network becomes four times slower, so that c is about twice B. How many milliseconds does overlap save then?

# %% id="07-9e9753"
guess = None

# %% id="07-b887eb"
L, F, B, step_end, size = 4, 1e-3, 2e-3, 0.5e-3, 1 << 18  # layers, s, s, s, floats per layer

def training_step(overlap):
    grads = [torch.full((size,), dist.get_rank() + 1.0) for _ in range(L)]
    compute(L * F)
    works = []
    for grad in grads:
        compute(B)
        works.append(dist.all_reduce(grad, async_op=True))
        if not overlap:
            works[-1].wait()
    [work.wait() for work in works]
    compute(step_end)
    synchronize()
    assert all(grad[0] == 3 for grad in grads)
    return time.perf_counter()

# %% id="07-95a372"
savings = {}
for slower in (1, 4):
    network = Network(latency=alpha, bandwidth=1 / beta / slower)
    c = alpha + 4 * size * beta * slower
    serial, beside = (simulate(training_step, way, world_size=2, network=network, backend="nccl")
                      for way in (False, True))
    assert abs(serial.results[0] - (L * (F + B + c) + step_end)) < 1e-9
    assert abs(beside.results[0] - (L * F + max(L * B + c, B + L * c) + step_end)) < 1e-9
    savings[slower] = serial.results[0] - beside.results[0]
    print(f"c = {1e3 * c:.3f} ms: one after another {1e3 * serial.results[0]:.2f} ms, "
          f"overlapped {1e3 * beside.results[0]:.2f} ms")
    known = (1.059, 16.73, 13.56) if slower == 1 else (4.204, 29.32, 23.32)
    assert known == (round(1e3 * c, 3), *(round(1e3 * j.results[0], 2) for j in (serial, beside)))
print("your guess:", guess, "  saved, ms:", [round(1e3 * s, 2) for s in savings.values()])
draw.timeline(beside, caption="On the slow network the communicator's stream never rests, and "
              "the optimizer waits for the last of four reductions.")

# %% [markdown] id="07-fcd7d8"
# Overlap can hide the smaller of two amounts, no more. On the fast network it hides three reductions; on the slow one three backward passes. There the step takes nearly twice as long as its computing, and no better overlap can help: it needs fewer bytes, or a faster link.
#
# DDP writes this step for you, with a bucket per layer; FSDP's `fully_shard` keeps only a part of each layer on a rank and gathers the rest before it is used. Here each of them wraps a small model, on a link of 0.8 GB/s, without an optimizer. `Busy` stands for the computing: F forward, B backward. We time the third step, because DDP rebuilds its buckets after the first.

# %% id="07-b26ed3"
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

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

def ddp(model):
    return DistributedDataParallel(model, bucket_cap_mb=1, forward_sync_buffers=False)

def fsdp(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))  # where modelled GPUs have tensors
    return [fully_shard(part, mesh=mesh) for part in [*model, model]][-1]

# %% id="07-ab10d2"
def seconds_per_step(wrap, n_steps=3):
    model = wrap(nn.Sequential(*(Layer(512, 512, bias=False) for _ in range(L))))
    for _ in range(n_steps):
        synchronize()
        start = time.perf_counter()
        model(torch.ones(2, 512)).sum().backward()
        synchronize()
        seconds = time.perf_counter() - start
    return seconds

link = Network(latency=alpha, bandwidth=0.8e9)
c = alpha + 4 * size / link.bandwidth
for wrap in (ddp, fsdp):
    gloo, nccl = (simulate(seconds_per_step, wrap, world_size=2, network=link, backend=backend)
                  for backend in ("gloo", "nccl"))
    print(f"{wrap.__name__}: {1e3 * gloo.results[0]:.2f} ms with gloo, "
          f"{1e3 * nccl.results[0]:.2f} ms on modelled GPUs")
    formula = L * F + max(L * B + c, B + L * c)
    assert wrap is fsdp or abs(nccl.results[0] - formula) < 1e-9  # 13.32 ms
assert [round(1e3 * job.results[0], 2) for job in (gloo, nccl)] == [19.98, 13.33]  # with fsdp
draw.timeline(nccl, between=(nccl.seconds - nccl.results[0], nccl.seconds), caption="fully_shard "
              "gathers the next layer's weights while this one computes, and scatters the sums.")

# %% [markdown] id="07-228c12"
# DDP overlaps under gloo as well: its reductions are asynchronous there, too. FSDP on the CPU waits for each gather before it goes on; on a GPU it gathers the next layer's weights while this one computes, by plain calls in streams of its own, which saves a third.
#
# ## Your turn: average_while_computing
#
# **Optional · 07.2 · difficulty ●●○ · about 15 minutes**
#
# **Goal.** `layers` is a list of pairs (seconds, gradient). For each pair, in order, call `compute(seconds)`; then the gradient is ready to be averaged. Average all of them in place, each while the next ones are being computed. **Budget:** the last average is there as early as two streams allow: each reduction starts when its layer is computed and the reduction before it is over. And the host never waits: it has issued every call before the first layer is computed.
#
# *Core* asks for the mean on 2 to 5 ranks, on modelled GPUs and on gloo. *Budget* looks at the times of the modelled GPUs. *Sturdy* adds one rank, eight ranks and an empty list.
#
# <details>
# <summary>Hint: when is the mean needed?</summary>
#
# Not before the function returns. `wait()` costs the host nothing, but it orders the compute stream: whatever is computed after it starts after the sum.
#
# </details>

# %% exercise="average_while_computing" role="answer" points=6 required=false difficulty=2
def average_while_computing(layers: list[tuple[float, Tensor]]) -> None:
    """Compute each layer, and average its gradient over all ranks while the next are computed.

    Every rank calls it with pairs of seconds and a float32 gradient, of equal seconds and shapes.
    It works in place. No layer's computing waits for an average, nor does the host for a layer.
    """
    ### BEGIN SOLUTION
    pending = []
    for spent, gradient in layers:
        compute(spent)
        pending.append(dist.all_reduce(gradient, async_op=True))
    for work, (_, gradient) in zip(pending, layers, strict=True):
        work.wait()
        gradient /= dist.get_world_size()
    ### END SOLUTION

# %% exercise="average_while_computing" role="try"
def four_layers():
    average_while_computing([(B, torch.ones(size)) for _ in range(L)])

draw.timeline(on_gpus(four_layers, world_size=2), caption="Computing should leave no gaps, "
              "and only the last reduction should add time.")

# %% exercise="average_while_computing" role="check"
check(average_while_computing)

# %% [markdown] id="07-b6131d"
# ## Who is slow?
#
# One of four ranks, a **straggler**, computes for 6 ms instead of 2 ms. All four then call `all_reduce`. A profiler on each GPU shows how long the reduction's kernel ran. On real GPUs, wrap a few steps in `profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])`, as in [lesson 06](06_ddp.ipynb), and call `export_chrome_trace(f"trace{rank}.json")` on each rank.
#
# Before you read on: on which ranks does the kernel run longest?

# %% id="07-f1d938"
def one_is_slow():
    compute(6e-3 if dist.get_rank() == 2 else 2e-3)
    dist.all_reduce(torch.ones(size))

slow = on_gpus(one_is_slow, world_size=4)
calls = [slow.trace.of(rank)[0] for rank in range(4)]
print("kernels, ms:", [round(1e3 * (call.completed - call.issued), 2) for call in calls])

# %% id="07-6e7c86"
assert calls[2].issued == max(call.issued for call in calls)
draw.timeline(slow, caption="Rank 2 comes last, and its kernel is the shortest.")

# %% [markdown] id="07-019aa8"
# On a GPU, `issued` is when the stream gets to the call, and `completed - issued` is how long the kernel ran. The kernel of a fast rank starts early, and then waits for the others. **The rank with the shortest kernel is the slow one.**
#
# ## What NCCL does differently
#
# Under gloo each send and receive is on its own. Under NCCL the calls of a communicator queue up, and a send at the head of the queue waits until the receive on the other side is at the head of *its* queue. So the exchange of lesson 01, in which everybody calls `isend` and then `irecv`, can hang, and with large messages does: each rank's send is first in its queue, and its receive stands behind the send. `dist.batch_isend_irecv` makes one call of several, whose parts start together.
#
# NCCL has **no tags**: between two ranks, messages meet in the order of the calls. A rank cannot receive from *whichever* rank sends first, either. And if you use several groups, use them **in the same order** on all ranks. Otherwise each of two GPUs may be occupied by a kernel that waits for the other GPU: see [lesson 08](08_groups.ipynb).
#
# Both functions below work on gloo. The second batches two letters and tells them apart by their tags. NCCL would swap them without a word; the model reports it.

# %% id="07-676896"
def pass_right():
    rank, n = dist.get_rank(), dist.get_world_size()
    outbox, inbox = torch.full((4,), float(rank)), torch.empty(4)
    for work in [dist.isend(outbox, (rank + 1) % n), dist.irecv(inbox, (rank - 1) % n)]:
        work.wait()

def two_letters():
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    if dist.get_rank() == 0:
        letters = [dist.P2POp(dist.isend, one, peer=1, tag=1),
                   dist.P2POp(dist.isend, two, peer=1, tag=2)]
    else:
        letters = [dist.P2POp(dist.irecv, two, peer=0, tag=2),
                   dist.P2POp(dist.irecv, one, peer=0, tag=1)]
    for work in dist.batch_isend_irecv(letters):
        work.wait()

for function in (pass_right, two_letters):
    simulate(function, world_size=2)  # on gloo
with expect(Deadlock):
    on_gpus(pass_right, world_size=2)
with expect(Mismatch):
    on_gpus(two_letters, world_size=2)

# %% [markdown] id="07-c8760d"
# ## Your turn: exchange_edges
#
# **Optional · 07.3 · difficulty ●●○ · about 20 minutes**
#
# A large field is cut into blocks of rows, one for each rank, and the ranks stand in a ring. To compute the next state, each rank needs the row above its block and the row below it.
#
# **Goal.** `x` has one row or more (its first dimension). Send your first row to the left neighbour, rank − 1, and your last row to the right one. Return `(from_left, from_right)`, two new tensors of the shape of `x[0]`: the left neighbour's *last* row and the right neighbour's *first*. A rank that is alone gets its own last and first row. Use send and receive, in whatever form; it has to run on NCCL. **Budget:** two messages per rank, each of one row.
#
# *Core* asks for 2 to 5 ranks on modelled GPUs, and three ranks on gloo. *Sturdy* adds one rank, eight ranks and more, a single row, integers, and several calls in a row.
#
# <details>
# <summary>Hint: two ranks</summary>
#
# With two ranks, left and right are the same rank, and both messages come from it. Which of its two sends is the first?
#
# </details>

# %% exercise="exchange_edges" role="answer" points=6 required=false difficulty=2
def exchange_edges(x: Tensor) -> tuple[Tensor, Tensor]:
    """Swap edge rows with both neighbours on a ring of ranks, in a way that NCCL can run.

    Every rank calls it with a tensor of the same shape (rows, …) and dtype; rows is at least 1.
    Returns (from_left, from_right), new tensors of the shape of x[0]: the last row of rank − 1,
    and the first row of rank + 1. Ranks count round the ring, and a rank alone gets its own edges.

    Budget: each rank sends two messages, of one row each.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return x[-1].clone(), x[0].clone()
    left, right = (rank - 1) % n, (rank + 1) % n
    from_left, from_right = torch.empty_like(x[0]), torch.empty_like(x[0])
    batch = [dist.P2POp(dist.isend, x[0].contiguous(), left),
             dist.P2POp(dist.isend, x[-1].contiguous(), right),
             dist.P2POp(dist.irecv, from_right, right),  # what goes left was sent first
             dist.P2POp(dist.irecv, from_left, left)]
    [work.wait() for work in dist.batch_isend_irecv(batch)]
    return from_left, from_right
    ### END SOLUTION

# %% exercise="exchange_edges" role="check"
check(exchange_edges)

# %% [markdown] id="07-ff6323"
# ## Break it: read too early
#
# `work.wait()` looks superfluous if the host is going to wait anyway. This function looks at a number right after the call. `.item()` waits for the *compute* stream. The reduction runs on the communicator's, and nothing has told the compute stream to wait for it.

# %% id="07-104cac"
def reads_too_early(x):
    work = dist.all_reduce(x, async_op=True)
    total = x.sum().item()
    return total, work.wait()

with expect(Hazard):
    on_gpus(reads_too_early, torch.ones(4), world_size=2)

# %% [markdown] id="07-7adb8d"
# A real GPU reports nothing. If the reduction happens to be over in time, the number is right, and the bug waits for a day with more load.
#
# ## A job that hangs, or fails
#
# On a cluster, nothing shows you who waits for whom. Under NCCL, a group has a `timeout`: ten minutes, unless `init_process_group(timeout=…)` says otherwise. When a collective takes longer, a *watchdog* thread ends the process, so there is no exception to catch: what you have is the log. Torchrun then ends the other ranks of its machine. In its table, "Root Cause" is the rank that *ended* first; with several machines, compare the tables' times. If that rank raised an exception, it is the culprit. After a timeout it is a victim, and the rank that hung is listed as ended by SIGTERM.
#
# Variables are read when a rank starts, so set them **before** the job. For a job that hangs now there is `py-spy dump`.
#
# | what you see | what to type | what it says |
# |---|---|---|
# | torchrun's table has no traceback | `@record` on `main` | each rank's exception |
# | it hangs **now** | `pip install py-spy`; on each machine `py-spy dump --pid PID` for each rank (`pgrep -f train.py` lists them, and torchrun) | the line where the rank stands; look for the one that stands elsewhere. It needs the right to trace (root, or `ptrace_scope` 0) |
# | it hangs, and does so again | `torchrun … -m course_lib.watch train.py`, your script unchanged | which calls do not fit or who waits for whom, at which lines ([lesson 11](11_debugging.ipynb)) |
# | it hangs, and you cannot install this library | `dist.monitored_barrier(timeout=…)` on a gloo group, before the call | which rank did not come |
# | `Received data size doesn't match`, SIGABRT, or strange sums | without DDP: `TORCH_DISTRIBUTED_DEBUG=DETAIL`. **With DDP** torch 2.15 then dies of SIGSEGV as it wraps the model: play the function on two ranks with `run` | both calls, with op, shape and dtype; `run` also the lines |
# | it hangs in the first call, on several machines | `NCCL_DEBUG=INFO` | which interface and which transport NCCL has chosen. `NCCL_SOCKET_IFNAME=eth0` chooses another interface, `NCCL_IB_HCA` another InfiniBand card, `GLOO_SOCKET_IFNAME=eth0` gloo's interface; these three print nothing |
# | it hangs in the first call, on one machine | `NCCL_P2P_DISABLE=1`, as a test; `df -h /dev/shm` | if it runs now, the GPUs cannot read each other's memory (an IOMMU or ACS is in the way). In a container /dev/shm may be too small |
# | `RendezvousTimeoutError` | look for the other agents | one was not started, or has another `--rdzv-id`. The port is fine |
# | `RendezvousConnectionError` | at the start: `nc -zv HOST PORT`, with HOST and PORT of `--rdzv-endpoint`. Later: the log of the torchrun on HOST | whether the port can be reached. Later the error is a consequence: the torchrun on HOST, which keeps the store, has ended |
# | it hangs after hours | before: `mkdir -p`, then `TORCH_FR_DUMP_TEMP_FILE=/shared/dumps/fr_`, an absolute path. After: `torchfrtrace --allow-incomplete-ranks /shared/dumps` | PyTorch's *Flight Recorder* dumps the last calls of each rank: who is missing where, if every rank has left a dump. A rank that hung outside of NCCL may leave none: then the tool names only that rank, and with `-j` what the others called last. Without the folder there is no dump; without the option a missing dump is an AssertionError |
# | a rank dies now and then | `--max-restarts=3`, checkpoints, and for gloo on torch 2.15 `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` | all ranks start again from the last checkpoint. Without the variable they may hang |
#
# The files in [course_tools/jobs](../../course_tools/jobs/train.sbatch) set what they need of this.
#
# You can see some of this on a laptop. The next two cells start four jobs under torchrun, side by side, and print the line that matters in each log. Three are broken; the fourth only wraps a model in DDP, with DETAIL set. This takes fifteen seconds. In the third cell `run` finds unequal shapes in a program with DDP. The cell then writes a script for CUDA and NCCL, which [`rehearse`](../../docs/rehearse.md) plays on two modelled GPUs: you see the hang before you have GPUs.

# %% id="07-106cf4"
import os, re, subprocess, sys, tempfile
from pathlib import Path

script = '''
import sys, time, torch, torch.distributed as dist
from datetime import timedelta
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main(mistake):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if mistake == "raises" and rank == 1:
        raise FileNotFoundError("train.bin")
    if mistake == "absent":
        if rank == 1: time.sleep(600)
        dist.monitored_barrier(timeout=timedelta(seconds=3))
    if mistake == "wraps":
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
        print("wrapped")
    dist.all_reduce(torch.ones(4 + rank * (mistake == "shapes")))
main(sys.argv[1])
'''
folder = tempfile.TemporaryDirectory()
_ = Path(folder.name, "broken.py").write_text(script)

# %% id="07-88f64f"
def start(mistake, **variables):
    quiet = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TMPDIR": folder.name}
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "broken.py"]
    return subprocess.Popen([sys.executable, *words, mistake], cwd=folder.name, text=True,
                            env=os.environ | quiet | variables, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)

detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
jobs = {"raises": start("raises"), "absent": start("absent"),
        "shapes": start("shapes", **detail), "wraps": start("wraps", **detail)}
logs = {mistake: job.communicate()[0] for mistake, job in jobs.items()}
folder.cleanup()
telling = {"raises": r"FileNotFoundError: .*", "absent": r"Rank 1 failed .*",
           "shapes": r"Collectives differ in the following aspects:.*shapes",
           "wraps": r"Signal 11 \(SIGSEGV\)|wrapped"}
for mistake, pattern in telling.items():
    code, said = jobs[mistake].returncode, re.findall(pattern, logs[mistake])[-1]
    print(f"{mistake}: exit code {code}, {said}")

# %% id="07-7c7886"
def strays():
    nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
    dist.all_reduce(torch.ones(4 + dist.get_rank()))

with expect(Mismatch):
    run(strays, world_size=2)

script = '''
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, n = dist.get_rank(), dist.get_world_size()
mine, left = torch.ones(4, device="cuda"), torch.empty(4, device="cuda")
for work in [dist.irecv(left, (rank - 1) % n), dist.isend(mine, (rank + 1) % n)]:
    work.wait()
'''
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "ring.py").write_text(script)
    words = [sys.executable, "-m", "course_lib.rehearse", "--ranks", "2", "ring.py"]
    rehearsed = subprocess.run(words, cwd=folder, text=True, capture_output=True)
print(rehearsed.stderr.strip())
assert rehearsed.returncode == 1 and "batch_isend_irecv" in rehearsed.stderr

# %% [markdown] id="07-c594eb"
# ## Your turn: first_missing
#
# **Optional · 07.4 · difficulty ●●● · about 20 minutes**
#
# A Flight Recorder dump lists the calls of a rank: for each the group, the members, a number within the group (`seq`) and the op. A thousand ranks hang. Nearly all wait in a call. The one that holds them up does not, and the call that it missed often belongs to another group than theirs.
#
# **Goal.** `dumps[rank]` is the list of that rank's calls, in order, each a dictionary such as `{"group": "tp01", "members": [0, 1], "seq": 0, "op": "all_reduce"}`. A call (group, seq) is *complete* when all members have made it. If they made it with different ops, the op of the majority counts (in a tie, that of the lowest rank which made the call), and the others count as if they had not made it. A rank *waits* if it has made a call, with the op that counts, and the call is not complete. Return `(group, seq, ranks)`: a call that is not complete, and the members that have neither made it nor wait in another call, sorted. At least one member must remain. If there are several such calls, take the first by group name, then by `seq`. Return `None` if there is none. Example: rank 0 waits for rank 1 in group `tp01`, rank 1 waits for everybody in call 0 of `all`, and rank 2 has called nothing. The answer is `("all", 0, [2])`.
#
# In a verdict, `0: all#0 tp01#0; 1: all#0` means: rank 0 has made call 0 of group `all` and call 0 of `tp01`, rank 1 only the first. `tp01` has the members 0 and 1, `all` has everybody, and `all#1/broadcast` is a call of another op than `all_reduce`.
#
# <details>
# <summary>Hint: three tables</summary>
#
# For each call, who has made it. From that, which calls lack somebody, and whom. From that, who waits. Only then can you say who is to blame.
#
# </details>

# %% exercise="first_missing" role="answer" points=6 required=false difficulty=3
def first_missing(dumps: list[list[dict]]) -> tuple[str, int, list[int]] | None:
    """The call at which a job stands still, and the ranks that are to blame.

    Args:
        dumps: for each rank its calls in order, each with "group" (name), "members" (ranks),
            "seq" (number within the group, from 0) and "op". Plain Python: no rank calls this.

    Returns (group, seq, ranks): the first call, by group name and then by seq, that is missing
    from members who do not wait in a call themselves, and these members, sorted; or None.
    """
    ### BEGIN SOLUTION
    made, members = {}, {}
    for rank, calls in enumerate(dumps):
        for call in calls:
            made.setdefault((call["group"], call["seq"]), {})[rank] = call["op"]
            members[call["group"]] = call["members"]
    missing, waiting = {}, set()
    for key, ops in made.items():
        names = list(ops.values())
        usual = max(names, key=names.count)  # of equally many the first one's
        came = {rank for rank, op in ops.items() if op == usual}
        missing[key] = set(members[key[0]]) - came
        waiting |= came if missing[key] else set()
    for key in sorted(missing):
        if missing[key] - waiting:
            return *key, sorted(missing[key] - waiting)
    return None
    ### END SOLUTION

# %% exercise="first_missing" role="check"
check(first_missing)

# %% [markdown] id="07-a167ab"
# ## In practice
#
# * **One process, one GPU.** Use the three device lines of the diff in [lesson 06](06_ddp.ipynb); `set_device` comes before anything uses CUDA.
# * **Which NCCL?** Since torch 2.15, `backend="nccl"` is a new implementation, ProcessGroupNCCL2. `TORCH_DIST_USE_NCCL2=0` or `backend="nccl-legacy"` brings back the old one.
# * **Feeding the GPU.** A plain `x.to(device)` makes the host wait for its copy in every step. With `DataLoader(pin_memory=True)` and `x.to(device, non_blocking=True)` it only queues the copy, as [ddp.py](../../course_tools/jobs/ddp.py) does.
# * **How are the GPUs connected?** `nvidia-smi topo -m` shows it. Within a machine, copies over NVLink or PCIe avoid the host's memory. Between machines, GPUDirect RDMA does.
# * **CPU tensors** have no place in an NCCL group. `init_process_group("cpu:gloo,cuda:nccl")` makes a group with both backends.
# * **Several ranks on one GPU.** NCCL refuses. NCCL 2.30, which comes with torch 2.15, has an experimental `NCCL_MULTI_RANK_GPU_ENABLE=1`: good for trying a program, not for speed.
#
# ## What the model leaves out
#
# * NCCL's kernels occupy some of the GPU's processors and slow computing beside them.
# * A small send may leave before its receive is there; the first call of a group takes long, because it connects.
# * Memory may be freed while a side stream still uses it (`record_stream`).
# * Hosts are noisy: 5 µs for a launch is an order of magnitude, not a law.
#
# ## Roads not taken
#
# CUDA graphs record a whole step and launch it as one; symmetric memory and SHARP let GPUs or switches add on the way.
#
# ## What you can do now
#
# * ☑ time calls that return at once;
# * ☑ overlap communication with computation, and say when it pays;
# * ☑ say what DDP and `fully_shard` do on a GPU's streams;
# * ☑ avoid the hangs that only NCCL has: batches, tags, order;
# * ☑ read the logs of a job that failed, and find the rank that is missing.
#
# **That was the core course**, from processes that know their number ([lesson 00](00_hello_ranks.ipynb)) to a cluster of GPUs. Beyond it, [lesson 08](08_groups.ipynb) divides the ranks into groups.
#
# ## Sources
#
# * PyTorch: [CUDA semantics](https://docs.pytorch.org/docs/stable/notes/cuda.html) (asynchronous execution, streams) · [Distributed communication](https://docs.pytorch.org/docs/stable/distributed.html) (synchronous and asynchronous collectives, debugging, `TORCH_DISTRIBUTED_DEBUG`) · [fully_shard](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) · [Flight Recorder](https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html) · [Error propagation](https://docs.pytorch.org/docs/stable/elastic/errors.html) (`@record`)
# * NVIDIA, NCCL: [Point-to-point communication](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html) (groups of calls) · [Environment variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html) · [Using multiple communicators concurrently](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html)
# * Mistakes that others have run into: [pytorch#68112](https://github.com/pytorch/pytorch/issues/68112) (`wait()` taken for blocking), [nccl#1192](https://github.com/NVIDIA/nccl/issues/1192) (unbatched exchange hangs), [pytorch#68866](https://github.com/pytorch/pytorch/issues/68866) (read before wait)
