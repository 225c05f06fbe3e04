# %% [markdown] id="01-adafbc"
# # Send and receive without ever standing still
#
# **Messages between two ranks: when they wait, when they deadlock, and how to keep everybody moving.**
#
# ![Four simulated ranks hand a tensor to the right: first one after another, each waiting for its turn, then all at once](../../figures/01_point_to_point.png)
#
# *Where this goes: the same messages twice. On the left each rank listens before it speaks; on the right nobody stands still.*
#
# | | |
# |---|---|
# | **Do** | send tensors from rank to rank, time the messages, watch four ranks wait for one another for ever, take turns without a clock |
# | **Learn** | send and recv, isend and irecv, `wait`, tags; when a send is over; what a deadlock is and how to rule it out; what may not be touched on the way |
# | **Need** | [00, Say hello from many processes](00_hello_ranks.ipynb): rank, world size, `run` |
# | **Time** | 60 minutes (estimated), one required exercise, two optional ones |

# %% [markdown] id="01-c2b1b7"
# ## The problem in one process
#
# Twelve heights along a walk, in metres above the sea. How far up or down does each step go? In one process that is `diff`: each height minus the one before it. Check the first three by hand: 30, 80, 80. The eleven differences are our *reference*.
#
# The same question returns wherever something long is cut into pieces: a cell of a weather model needs the cell next door, a stage of a pipeline needs what the stage before it has computed, and attention over a text too long for one GPU needs keys and values from the GPU that holds the rest.

# %% id="01-dce8ab"
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from course_lib import (
    Deadlock, Hazard, Mismatch, Network, check, compute, draw, expect, run, simulate,
)

heights = torch.tensor([310.0, 340, 420, 500, 480, 530, 610, 600, 560, 450, 380, 350])
reference = heights.diff()
assert reference.tolist() == [30, 80, 80, -20, 50, 80, -10, -40, -110, -70, -30]

# %% [markdown] id="01-355de3"
# ## One rank sends, another receives
#
# Give each of four ranks three heights. Two of its steps a rank can compute alone. For the step into its block it needs one number more, the last height of its left neighbour, and that is in another process. Two calls carry it over:
#
# * `dist.send(tensor, dst=1)` on one rank;
# * `dist.recv(tensor, src=0)` on the other. It makes no tensor, it **fills** one, which must have the right size and dtype before.
#
# Both have to be called, once each, or somebody waits in vain. The other side of a message is called the *peer*. Communication between two ranks is *point-to-point*, in contrast to collectives such as `all_reduce`.
#
# Every rank runs the same function, so the function asks for its rank: the first one has nobody on its left, the last one nobody on its right. `listen_first` has good manners and speaks when it has been spoken to.

# %% id="01-b7a5db"
def listen_first(mine):
    """The last height of the left neighbour; one's own goes to the right."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    before = torch.empty(1 if rank > 0 else 0)
    if rank > 0:
        dist.recv(before, src=rank - 1)
    if rank < world_size - 1:
        dist.send(mine[-1:], dst=rank + 1)
    return before

def climbs(hand_on, heights):
    mine = heights.tensor_split(dist.get_world_size())[dist.get_rank()]
    return torch.cat([hand_on(mine), mine]).diff()

walk = run(climbs, listen_first, heights)
assert torch.equal(torch.cat(walk.results), reference)
assert [message.nbytes for message in walk.trace.messages] == [4, 4, 4]
draw.values(heights.tensor_split(4), walk.results, titles=["heights", "climbs"],
            caption="Rank 0 has two climbs, the others three: a message brought the height before.")

# %% [markdown] id="01-70fab3"
# Three messages of 4 bytes, the right answer, and a flaw. To see it we need times that do not depend on what else this machine is doing. `simulate` runs the same function on ranks that are *modelled*: computing costs nothing, and a message of S bytes takes
#
# **T = latency + S / bandwidth**, in seconds,
#
# the first model that people use for networks (Hockney, 1994). Our network has a latency of 5 µs and carries 25 GB/s, so that T = 5 µs + 4 B / 25 GB/s = 5.00016 µs. Lesson 03 takes this formula apart; here T is a unit of time.
#
# **Predict.** Every rank has the height that its neighbour needs from the very beginning. How many T after the start does the last of the four ranks have its number?

# %% id="01-8d0269"
guess = None

# %% id="01-bca161"
network = Network(latency=5e-6, bandwidth=25e9)
T = network.seconds(4)
slow = simulate(listen_first, heights, world_size=4, network=network)
print(f"your guess: {guess}   recorded: {slow.seconds / T:.1f} T")
assert round(slow.seconds / T, 6) == 3 and round(1e6 * T, 5) == 5.00016  # µs
draw.timeline(slow, caption="Listening first: each message waits for one it does not depend on.")

# %% [markdown] id="01-0221fc"
# ## Begin now, wait later
#
# Rank 1 holds back a message that has been ready from the start, until it has heard another one that has nothing to do with it; rank 2 does the same. You see it in the picture, a *space-time diagram*: ranks from top to bottom, time from left to right, an arrow for each message; hatched is the time in which a call waits for its partner. (The sends are in the picture, too; with 4 bytes they are too short to be seen.) So n ranks take (n − 1)·T. With four it is a nuisance. With a thousand almost all of them stand still almost all of the time.
#
# The remedy is to split a call in two. **`isend` and `irecv`** (i for *immediate*) begin a message and return at once. What they return is a `Work`, a receipt for the message under way. **`Work.wait()`** returns when the message is done:
#
# * for an `irecv`: the data are in the tensor;
# * for an `isend`: the tensor is yours again, to be changed or freed.
#
# Between the two, other messages can begin, or the rank computes. `send` is `isend` with `wait` behind it, `recv` likewise: PyTorch's own code says so.

# %% id="01-3fac23"
def all_at_once(mine):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    before, under_way = torch.empty(1 if rank > 0 else 0), []
    if rank > 0:
        under_way.append(dist.irecv(before, src=rank - 1))
    if rank < world_size - 1:
        under_way.append(dist.isend(mine[-1:], dst=rank + 1))
    for work in under_way:
        work.wait()
    return before

assert torch.equal(torch.cat(run(climbs, all_at_once, heights).results), reference)
fast = simulate(all_at_once, heights, world_size=4, network=network)
assert round(fast.seconds / T, 6) == 1
draw.timeline(fast, caption="All at once: the same three messages leave at the same moment.")

# %% id="01-a6b22c"
worlds, ways = [2, 4, 8, 16, 32, 64], {"listen first": listen_first, "all at once": all_at_once}
times = {name: [simulate(way, heights, world_size=n, network=network).seconds / T for n in worlds]
         for name, way in ways.items()}
assert [[round(t, 6) for t in ts] for ts in times.values()] == [[n - 1 for n in worlds], [1] * 6]
draw.lines({name: (worlds, t) for name, t in times.items()}, "ranks", "time in units of T",
           exact=True, caption="Listening first costs (n − 1)·T, all at once T, for any n.")

# %% [markdown] id="01-6a68d4"
# ## When is a send over?
#
# Rank 0 sends four bytes. Rank 1 is busy and calls `recv` 0.2 seconds later. Two answers are possible, and networks give both:
#
# * **buffered**: the bytes set off at once and are stored where they arrive; the send is over as soon as they have left, whatever the receiver does;
# * **rendezvous**: the bytes set off only when the recv has been called, too; the send is over when they have left. Nothing has to be stored. (The word is the one from lesson 00, the thing is another: there ranks met to form a group, here a message meets its recv.)
#
# **Predict.** This is real gloo, and the message has 4 bytes. How many seconds does rank 0 spend in `send`?

# %% id="01-4fdb59"
def busy_receiver():
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), dst=1)
    else:
        compute(0.2)  # stands for anything that takes time
        dist.recv(torch.empty(1), src=0)

guess = None

# %% id="01-4391b3"
real = run(busy_receiver, world_size=2)
[send], [receive] = real.trace.ops("send"), real.trace.ops("recv")
print(f"your guess: {guess}   recorded: {send.completed - send.issued:.2f} s")
assert send.completed > receive.issued
draw.timeline(real, caption="Real gloo, 4 bytes: the send is not over before its recv has come.")

# %% id="01-8a0692"
for buffered in (False, True):
    late = simulate(busy_receiver, world_size=2, network=network, buffered=buffered)
    took = [call.completed - call.issued for op in ("send", "recv") for call in late.trace.ops(op)]
    print(f"{buffered = !s:6} the send takes {took[0]:.1f} s, the recv {1e6 * took[1]:.2f} µs")
    assert [round(seconds, 9) for seconds in took] == ([0, 0] if buffered else [0.2, 5e-6])

# %% [markdown] id="01-071712"
# `simulate` does as gloo does, unless you ask for the other world with `buffered=True`. The recv shows the same difference: after a rendezvous the message still takes its 5 µs, while buffered bytes are already there. Which world is real? MPI's ordinary send may do either, and its libraries tend to buffer small messages and to wait with large ones. NCCL's send may block until the recv comes. So a program must be right in both worlds: **whoever relies on buffering is right by luck**, and the luck depends on the size of the message, the library and its version.
#
# ## Break it: close the circle
#
# Make the walk a round one: the last rank hands its height to rank 0. And since listening first was slow, let everybody speak first. It reads like the sentence that describes it.

# %% id="01-cf523f"
def speak_first():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    before = torch.empty(1)
    dist.send(torch.ones(1) * rank, dst=right)
    dist.recv(before, src=left)
    return before.item()

with expect(Deadlock) as caught:
    run(speak_first)
draw.waits(caught.error, caption="Who waits for whom: an arrow to the rank that could end the "
           "wait. The arrows close a circle, so none of them ever will.")

# %% id="01-ff427d"
lucky = simulate(speak_first, world_size=4, buffered=True)
assert lucky.results == [3, 0, 1, 2]
print("where sends are buffered:", lucky.results)

# %% [markdown] id="01-fb7837"
# A *deadlock*: every rank waits for another, and the arrows of the *wait-for graph* lead back to where they began. Such a *circular wait* is one of the four conditions of any deadlock (Coffman and others, 1971), and the one that the order of calls can rule out. `run` compares what each rank has called, sees that no missing call can ever come, and says so. Left alone, gloo would wait for its timeout, by default 30 minutes. In the buffered world the same lines give the right answer, which is how they get into programs.
#
# ## Your turn: exchange
#
# **Required · 01.1 · difficulty ●○○ · about 15 minutes**
#
# Two ranks are the smallest circle. Write the function with which two partners swap tensors.
#
# **Goal.** Each of the two returns a new tensor with what the other one had; `mine` stays as it was. A rank may be its own partner: then it returns a copy, and sends nothing (gloo refuses a message to oneself). Use send and receive, in any of their forms, and nothing else.
#
# The *core* level asks for pairs in worlds of 2 and 4 ranks, with float32 that lies side by side in memory. *Sturdy* adds ranks that are their own partner, empty tensors, other dtypes, and strided tensors, which gloo neither sends nor receives.
#
# <details>
# <summary>Hint: two ways out of the circle</summary>
#
# Either the two partners do different things: one speaks first, the other listens first. Both know both ranks, so both can tell which one they are. Or neither waits before both messages are under way. The tensor in which you receive cannot be the one that you are sending.
#
# </details>

# %% exercise="exchange" role="answer" points=10 required=true difficulty=1
def exchange(mine: torch.Tensor, partner: int) -> torch.Tensor:
    """Swap tensors with a partner.

    Both partners call it, each with the other's rank.

    Args:
        mine: what this rank has; of equal shape and dtype on both sides. Stays as it is.
        partner: the rank to swap with; may be this rank itself.

    Returns:
        A new tensor with what the partner had; a copy of ``mine`` where the partner is this rank.
    """
    ### BEGIN SOLUTION
    inbox = mine.clone(memory_format=torch.contiguous_format)
    if partner != dist.get_rank():
        coming = dist.irecv(inbox, src=partner)
        dist.send(mine.contiguous(), dst=partner)
        coming.wait()
    return inbox
    ### END SOLUTION

# %% exercise="exchange" role="try"
def swap(rows):
    mine = rows[dist.get_rank()]
    return {"before": mine, "after": exchange(mine, partner=3 - dist.get_rank())}

draw.values(run(swap, torch.arange(8).reshape(4, 2)),
            caption="Partners: 0 and 3, 1 and 2. Each should have the other's colour afterwards.")

# %% exercise="exchange" role="check"
check(exchange)

# %% [markdown] id="01-02fc78"
# ## Break it: touch what is on its way
#
# From `isend` or `irecv` until `wait()` returns, the tensor belongs to the message. Three rules follow:
#
# 1. **Do not read** what an `irecv` is filling. You may find old numbers, new ones, or some of each.
# 2. **Do not write** to what an `isend` is sending. The receiver may get either version. Reading it is fine.
# 3. **Wait for every Work.** A Work that nobody waits for is a message of which nobody knows whether it has left, and an error that nobody hears of.
#
# To break one is a *hazard*: you usually get away with it, on a fast network, in a small test. `simulate` does not rely on luck: it runs the function twice, with different numbers in the tensors that are still to be filled, and compares.

# %% id="01-461354"
def look_too_soon():
    before, seen = torch.zeros(1), None
    if dist.get_rank() == 0:
        dist.send(torch.tensor([500.0]), dst=1)
    else:
        coming = dist.irecv(before, src=0)
        seen = before.item()  # one line too early
        coming.wait()
    return seen

with expect(Hazard):
    simulate(look_too_soon, world_size=2)

# %% [markdown] id="01-a4b2d1"
# ## Your turn: pass_right
#
# **Optional · 01.2 · difficulty ●●○ · about 15 minutes**
#
# Back to the round walk, without its deadlock. `isend` is one way. The other needs nothing but `send` and `recv` in the right order: **even ranks send first, odd ranks receive first**. It looks as if it should fail when n is odd, because the last rank and rank 0 are then both even and both send. It is right for every n ≥ 2; here is why.
#
# Suppose that ranks stand still for ever, and follow the arrows. A rank in `send` waits for its right neighbour, a rank in `recv` for its left one. (Nobody waits for a rank that has returned: it has made both of its calls.) Arrows never meet head-on: if a rank sends to its right neighbour while that one receives from it, the message goes through. So the arrows go round in one direction, through all ranks: either *all* stand in `send` or *all* in `recv`. Now look at ranks 0 and 1. Rank 0 sends first, rank 1 receives first.
#
# * All in `send`? For rank 1 that is the second call. Its first, the recv from rank 0, is over, and so is the send of rank 0.
# * All in `recv`? For rank 0 that is the second call. Its send to rank 1 is over, and so is the recv of rank 1.
#
# Neither can be. One even and one odd neighbour were enough for the proof; the others only save time, because many pairs move at once.
#
# **Goal.** Every rank returns a new tensor with what its left neighbour had, rank 0 that of the last rank; alone, a copy. `mine` stays as it was, and only send and receive are used.
#
# <details>
# <summary>Hint: what is left to decide?</summary>
#
# Who your neighbours are: `%` brings the rank after the last one back to 0. Where to receive: in a tensor of its own, since `mine` stays as it is. And what to do on a single rank, whose neighbours are both itself.
#
# </details>

# %% exercise="pass_right" role="answer" points=10 required=false difficulty=2
def pass_right(mine: torch.Tensor) -> torch.Tensor:
    """Hand a tensor to the right neighbour, and get the left neighbour's.

    Every rank calls it, and no other message is on its way then. The right neighbour of rank r is
    r + 1, that of the last rank is rank 0.

    Args:
        mine: what this rank has; of equal shape and dtype on all ranks. Stays as it is.

    Returns:
        A new tensor with what the left neighbour had; a copy of ``mine`` on a single rank.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    inbox = mine.clone(memory_format=torch.contiguous_format)
    if n == 1:
        return inbox
    steps = [lambda: dist.send(mine.contiguous(), dst=(rank + 1) % n),
             lambda: dist.recv(inbox, src=(rank - 1) % n)]
    for step in steps if rank % 2 == 0 else reversed(steps):
        step()
    return inbox
    ### END SOLUTION

# %% exercise="pass_right" role="try"
draw.timeline(simulate(pass_right, torch.arange(4.0), world_size=5, network=network),
              caption="Five ranks, an odd number: every rank sends to the right, none is stuck.")

# %% exercise="pass_right" role="check"
check(pass_right)

# %% [markdown] id="01-d37e7e"
# ## Tags
#
# Which recv takes which message? Between two ranks messages stay in order: the first recv takes the first send, the second takes the second. A *tag*, a number that both sides give, sorts them into separate queues: a recv with tag 2 takes the first message with tag 2 and leaves the others alone. So rank 1 can take the later letter first, provided that both are under way.
#
# **Break it.** The second cell below calls the same function with `send` in place of `isend`. The first letter waits for a recv with tag 1, which comes after the recv with tag 2, which waits for the second letter, which comes after the first. Two ranks, four calls, and again a circle. The diagnosis names what differs where the two meet: the tag.

# %% id="01-e707d9"
def take_both():
    late, early = torch.empty(1), torch.empty(1)
    dist.recv(late, src=0, tag=2)
    dist.recv(early, src=0, tag=1)
    return early.item(), late.item()

def two_letters(send):
    if dist.get_rank() == 1:
        return take_both()
    letters, works = {1: torch.tensor([10.0]), 2: torch.tensor([20.0])}, []
    for tag in (1, 2):
        works += [send(letters[tag], 1, tag=tag)]
    return [work.wait() for work in works if work]  # send returns no Work

assert run(two_letters, dist.isend, world_size=2).results[1] == (10, 20)

# %% id="01-9c6bf5"
with expect(Mismatch):
    run(two_letters, dist.send, world_size=2)

# %% [markdown] id="01-3307ff"
# ## Your turn: in_order
#
# **Optional · 01.3 · difficulty ●●○ · about 15 minutes**
#
# A message carries data, and it also carries *time*: after a recv you know that everything which the sender did before its send has happened (Lamport, 1978). Sometimes that is all you want. Four ranks have to write to one file, rank 0 first, then 1, and so on. No clock can arrange that, and no sleep; a word passed along can.
#
# **Goal.** `in_order(work)` calls `work()` once on every rank, on rank 0 first. None begins before the previous one has ended, however long it takes. Send and receive only: a barrier brings everybody together, and here only two have to know.
#
# <details>
# <summary>Hint: what does the message say?</summary>
#
# Nothing: that it comes is the message. Such a *token* may be an empty tensor. Two ranks are special. Who begins without being told, and who has nobody left to tell?
#
# </details>

# %% exercise="in_order" role="answer" points=10 required=false difficulty=2
def in_order(work: Callable[[], None]) -> None:
    """Call ``work()`` on rank 0, then on rank 1, and so on: one at a time.

    Every rank calls it, and no other message is on its way then.

    Args:
        work: takes no argument and returns nothing; how long it takes differs from rank to rank.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    token = torch.empty(0)
    if rank > 0:
        dist.recv(token, src=rank - 1)
    work()
    if rank < n - 1:
        dist.send(token, dst=rank + 1)
    ### END SOLUTION

# %% exercise="in_order" role="try"
def shift():
    in_order(lambda: compute(1e-5 * (1 + dist.get_rank() % 2)))

draw.timeline(simulate(shift, world_size=4, network=network),
              caption="Each rank's compute should begin after the compute of the rank above it.")

# %% exercise="in_order" role="check"
check(in_order)

# %% [markdown] id="01-644726"
# ## Measured: what a message costs
#
# Back to real processes. Two ranks play *ping-pong*: rank 0 sends a tensor, rank 1 sends it back, and half of the round trip is one message. They play thirty rounds of twelve sizes, and of each size the shortest time counts, the one that was disturbed least by whatever else the machine was doing. Both axes are logarithmic, because the sizes are: from 4 bytes to 4¹² bytes, 16.8 MB.

# %% id="01-d42226"
def ping_pong(sizes, rounds=30):
    """How long a message takes one way, in seconds, by its size in bytes: the shortest time."""
    one_way = dict.fromkeys(sizes, float("inf"))
    for nbytes in sizes * rounds:
        ball = torch.zeros(nbytes, dtype=torch.uint8)
        start = time.perf_counter()
        if dist.get_rank() == 0:
            dist.send(ball, dst=1)
            dist.recv(ball, src=1)
        else:
            dist.recv(ball, src=0)
            dist.send(ball, dst=0)
        one_way[nbytes] = min(one_way[nbytes], (time.perf_counter() - start) / 2)
    return one_way

sizes = [4**k for k in range(1, 13)]
one_way = run(ping_pong, sizes, world_size=2).results[0]
assert len(sizes) == 12 and sizes[-1] == 16_777_216 == 4_194_304 * sizes[0]
assert one_way[4096] < 10 * one_way[4] and 2 < one_way[sizes[-1]] / one_way[4] < 100_000
draw.lines({"gloo, two processes": (sizes, list(one_way.values()))}, "bytes", "seconds, one way",
           loglog=True, caption="Small messages all cost the same; large ones cost by the byte.")

# %% [markdown] id="01-27c179"
# Fit the two halves by eye. On the left the curve is flat: a message of 4 bytes costs what one of a few thousand does, and what you pay is the latency. On the right it becomes a straight line, and you pay for bandwidth. From the smallest message to the largest the bytes grow 4,194,304-fold, the time less than 100,000-fold. Lesson 03 puts numbers on both halves.
#
# ## In practice
#
# In training, point-to-point messages carry activations and gradients between the stages of a pipeline, and keys and values round the ring of Ring Attention (Liu and others, 2023). PyTorch's own pipelines do it by **`batch_isend_irecv`**: a list of operations that begin together, in any order. Here every rank trades edges with both neighbours, a *halo*, to smooth the heights.

# %% id="01-1e93cf"
def smooth(heights):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = heights.tensor_split(world_size)[rank]
    wide = torch.cat([mine[:1], mine, mine[-1:]])  # with room for the neighbours' edges
    edges = {rank - 1: (mine[:1], wide[:1]), rank + 1: (mine[-1:], wide[-1:])}
    batch = []
    for peer, (own, theirs) in edges.items():
        if 0 <= peer < world_size:
            batch += [dist.P2POp(dist.isend, own, peer), dist.P2POp(dist.irecv, theirs, peer)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return (wide[:-2] + wide[1:-1] + wide[2:]) / 3

smoothed, padded = run(smooth, heights), torch.cat([heights[:1], heights, heights[-1:]])
assert torch.equal(torch.cat(smoothed.results), (padded[:-2] + padded[1:-1] + padded[2:]) / 3)
assert [smoothed.trace.bytes_sent(rank) for rank in range(4)] == [4, 8, 8, 4]

# %% [markdown] id="01-c8cd81"
# On gloo the batch is a convenience. **On NCCL it is the way to exchange**, and three habits from this page have to go:
#
# * *NCCL ignores tags.* The two letters from above would arrive in the order in which they were sent, each in the other's tensor, without an error. Rely on the order.
# * *An isend and an irecv of their own need not run side by side there.* They may be queued on the GPU, one behind the other; if both ranks queue their send first, each waits for a recv that stands behind it. A batch becomes one group of NCCL calls, which progress together. If it is the first call in its group of ranks, all of them have to take part.
# * *`wait()` does not stop the CPU.* It makes the GPU's current stream wait for the message. What you compute on that stream afterwards is safe. But a clock on the CPU measures nothing, and a token orders nothing there: it would hold up the GPU, and not your file.
#
# Nothing on this page was measured on a GPU.
#
# ## Roads not taken
#
# * **One call for both directions**, MPI's `Sendrecv`. PyTorch has none; a batch of two is its counterpart.
# * **Receiving from anybody**: `recv` without `src` takes what comes and returns who sent it. It makes results depend on who is faster; name your peer where you can.
# * **Sending objects**: `send_object_list` pickles them first. Handy for settings, slow for tensors.
# * **One-sided access**, where a rank writes into another's memory and nobody calls recv, as in MPI's windows and in NVSHMEM. No recv to wait for, and no recv to say that the data may be read.
#
# ## What you can do now
#
# * ☑ send a tensor to a peer and receive one, and begin messages now and wait for them later;
# * ☑ say when a send is over, in both worlds, and why a program has to be right in the stricter one;
# * ☑ read a deadlock, draw its circle, and prove that an order of calls has none;
# * ☑ name what may not be touched before `wait()`;
# * ☑ tell messages apart by order and by tag, and say why NCCL sees only the order;
# * ☑ swap tensors, pass them round a ring, and take turns without a clock.
#
# **Next**, many messages become one call: [02, collectives](02_collectives.ipynb), built from send and receive.
#
# ## Sources
#
# * PyTorch: [Point-to-point communication](https://docs.pytorch.org/docs/stable/distributed.html#point-to-point-communication) (send, recv, isend, irecv, batch_isend_irecv, tags) · [pytorch#94819](https://github.com/pytorch/pytorch/issues/94819) (NCCL and tags) · [distributed_c10d.py](https://github.com/pytorch/pytorch/blob/main/torch/distributed/distributed_c10d.py) (send and recv as isend and irecv with a wait) · [Pipeline parallelism](https://docs.pytorch.org/docs/stable/distributed.pipelining.html), whose schedules call `batch_isend_irecv`
# * NVIDIA: [NCCL, point-to-point communication](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html) (grouped calls) · [nccl#479](https://github.com/NVIDIA/nccl/issues/479) (both send first) · [nccl#783](https://github.com/NVIDIA/nccl/issues/783) (a send may block until its recv) · [NVSHMEM](https://docs.nvidia.com/nvshmem/api/) (one-sided access)
# * Message Passing Interface Forum, [*MPI: A Message-Passing Interface Standard*, version 4.0](https://www.mpi-forum.org/docs/mpi-4.0/mpi40-report.pdf), 2021: in chapter 3 the sections on communication modes, on the semantics of point-to-point communication (when a send is over; unsafe programs) and on send-receive; chapter 12 (one-sided communications)
# * E. G. Coffman, M. J. Elphick, A. Shoshani, *System Deadlocks*, ACM Computing Surveys 3(2), 1971, [doi:10.1145/356586.356588](https://doi.org/10.1145/356586.356588)
# * L. Lamport, *Time, Clocks, and the Ordering of Events in a Distributed System*, Communications of the ACM 21(7), 1978, [doi:10.1145/359545.359563](https://doi.org/10.1145/359545.359563)
# * R. W. Hockney, *The communication challenge for MPP: Intel Paragon and Meiko CS-2*, Parallel Computing 20(3), 1994, [doi:10.1016/S0167-8191(06)80021-9](https://doi.org/10.1016/S0167-8191(06)80021-9)
# * H. Liu, M. Zaharia, P. Abbeel, *Ring Attention with Blockwise Transformers for Near-Infinite Context*, 2023, [arXiv:2310.01889](https://arxiv.org/abs/2310.01889)
