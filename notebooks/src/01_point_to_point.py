# %% [markdown] id="01-adafbc"
# # Send and receive without ever standing still
#
# **Messages between two ranks: when they wait, when they deadlock, and how to keep every rank moving.**
#
# ![Four simulated ranks hand a tensor to the right: first one after another, each waiting for its turn, then all at once](../../figures/01_point_to_point.png)
#
# *Where this goes: the same messages, sent in two ways. On the left each rank receives (listens) before it sends (speaks). On the right all messages travel at the same time. Between the two, a barrier lets all ranks begin together.*
#
# | | |
# |---|---|
# | **Do** | send tensors from rank to rank, time the messages, watch four ranks wait for one another for ever, take turns without a clock |
# | **Learn** | send and recv, isend and irecv, `wait`, tags; when a send is over; what a deadlock is and how to rule it out; what you must not touch while a message is under way |
# | **Need** | [00, Say hello from many processes](00_hello_ranks.ipynb): rank, world size, `run` |
# | **Time** | about 65 minutes with the required exercise, 95 with the two optional ones as well |

# %% [markdown] id="01-c2b1b7"
# ## The problem in one process
#
# Here are twelve heights along a walk, in metres above the sea. How far up or down does each step go? In one process the answer is `diff`: each height minus the one before it. Check the first three by hand: 30, 80, 80. The eleven differences are our *reference*.
#
# Soon the walk is cut into pieces, one per rank. The first step of a piece begins at the last height of the piece before it, and that height is on another rank.

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
# Give each of four ranks three heights. A rank can compute two of its steps alone. For the step into its block it needs one more number, the last height of its *left neighbour*, the rank before it. Two calls bring that number over:
#
# * `dist.send(tensor, dst=1)` on one rank;
# * `dist.recv(tensor, src=0)` on the other. It does not return a tensor. It **fills** the one that you pass, which must already have the right size and dtype.
#
# Each side must make its call, once per message, or the other side waits for ever. The rank on the other side of a message is called the *peer*. Communication between two ranks is *point-to-point*, in contrast to collectives such as `all_reduce`.
#
# Every rank runs the same function, so the function asks for its rank: the first rank has no left neighbour, and the last one has no right neighbour. In `listen_first`, rank 0 begins; every other rank speaks (sends) only after it has listened (received). `climbs` gives each rank its three heights, lets it fetch the one before them, and takes the differences.

# %% id="01-b7a5db"
def listen_first(mine):
    """Get the last height of the left neighbour; send this rank's own to the right."""
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
            caption="From rank 1 on, the first climb starts at the last height one row up: "
            "500 − 420 = 80.")

# %% [markdown] id="01-70fab3"
# Three messages of 4 bytes bring the right answer, but the function has a flaw. To see it we need times that do not depend on what else this machine is doing. `simulate` runs the same function on *modelled* ranks. Ordinary lines take no time there, and a message of S bytes takes
#
# $$T = \text{latency} + \frac{S}{\text{bandwidth}}$$
#
# in seconds: a common first model of a network (Hockney, 1994). The latency is a byte's travelling time, and the bandwidth says how many bytes leave per second. Let our network be slow enough to watch, with a latency of 1 s and a bandwidth of 4 bytes per second. A message of 4 bytes then takes T = 1 + 4/4 = 2 s.
#
# **Predict.** From the beginning, every rank has the height that its neighbour needs. With `listen_first`, after how many seconds does the last rank have its number?

# %% id="01-8d0269"
guess = None

# %% id="01-bca161"
network = Network(latency=1, bandwidth=4)  # in seconds, and in bytes per second
slow = simulate(listen_first, heights, world_size=4, network=network)  # only times matter here
print(f"your guess: {guess}   recorded: {slow.seconds:g} s")
assert slow.seconds == 3 * network.seconds(4) == 3 * 2
draw.timeline(slow, caption="Listening first: ranks 1 and 2 hold back a message that has been "
              "ready since the start.")

# %% [markdown] id="01-0221fc"
# ## Begin now, wait later
#
# Rank 1 could send at once. Instead it first waits for a message that has nothing to do with its own, and rank 2 does the same. The picture is a *space-time diagram*: ranks from top to bottom, time from left to right, and an arrow for each message, which takes 2 s. The sender's box ends after 1 s, when its bytes have left. They travel for another second, the latency. Hatching is the time that a call waits for its partner. With n ranks the whole exchange takes (n − 1)·T: even among a thousand ranks, only one message is under way at a time.
#
# The remedy is to split a call in two. **`isend` and `irecv`** (the i is for *immediate*) begin a message and return at once. They return a `Work`, a receipt for the message under way. **`Work.wait()`** returns when the message is done:
#
# * for an `irecv`, when the data are in the tensor;
# * for an `isend`, when you may change or free the tensor again.
#
# In between, the rank can begin other messages, or compute. `send` is `isend` followed by `wait`, and `recv` is `irecv` followed by `wait`.

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
T = network.seconds(4)
assert fast.seconds == T == 2
draw.timeline(fast, caption="All at once: the same three messages leave at the same moment. Calls "
              "of one rank that are under way together share its lane.")

# %% id="01-a6b22c"
worlds, ways = [2, 4, 8, 16, 32, 64], {"listen first": listen_first, "all at once": all_at_once}
times = {name: [simulate(way, heights, world_size=n, network=network).seconds / T for n in worlds]
         for name, way in ways.items()}
assert list(times.values()) == [[n - 1 for n in worlds], [1] * 6]
draw.lines({name: (worlds, t) for name, t in times.items()}, "ranks", "time in units of T",
           exact=True, caption="Listening first takes (n − 1)·T; all at once takes T, for any n.")

# %% [markdown] id="01-6a68d4"
# ## When is a send over?
#
# Rank 0 sends four bytes. Rank 1 is busy and calls `recv` 0.2 seconds later. There are two possibilities, and both occur in real networks:
#
# * **Buffered**: the bytes set off at once and are stored where they arrive. The send is over as soon as they have left, whatever the receiver does.
# * **Rendezvous**: the bytes set off only when the recv has been called as well, so nothing needs to be stored. The send is over when the bytes have left. (In lesson 00 the word meant something else.)
#
# **Predict.** This is real gloo, and the message has 4 bytes. How many seconds does rank 0 spend in `send`?

# %% id="01-4fdb59"
def busy_receiver():
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), dst=1)
    else:
        compute(0.2)  # stands for work of 0.2 s, in run and in simulate
        dist.recv(torch.empty(1), src=0)

guess = None

# %% id="01-4391b3"
real = run(busy_receiver, world_size=2)
[send], [receive] = real.trace.ops("send"), real.trace.ops("recv")
print(f"your guess: {guess}   recorded: {send.completed - send.issued:.2f} s")
assert send.completed > receive.issued
draw.timeline(real, caption="Real gloo, 4 bytes: the send ends only once its recv has been called.")

# %% id="01-8a0692"
cluster = Network(latency=5e-6, bandwidth=25e9)  # as fast as a network between machines
for buffered in (False, True):
    late = simulate(busy_receiver, world_size=2, network=cluster, buffered=buffered)
    took = [call.completed - call.issued for op in ("send", "recv") for call in late.trace.ops(op)]
    print(f"{buffered = !s:6} the send takes {took[0]:.1f} s, the recv {1e6 * took[1]:.2f} µs")
    assert [round(seconds, 9) for seconds in took] == ([0, 0] if buffered else [0.2, 5e-6])

# %% [markdown] id="01-071712"
# `simulate` follows gloo's rule, unless you ask for the other one with `buffered=True`. With rendezvous, the message takes its 5 µs once the recv has been called. Buffered bytes are already there.
#
# Which rule will your program meet? MPI's ordinary send may follow either: MPI libraries tend to buffer small messages, and with a large one, the send waits for the recv. NCCL's send may block until the recv is called. So a program must be right under both rules. **A program that relies on buffering is right by luck**, and the luck depends on the size of the message, the library and its version.
#
# ## Break it: close the circle
#
# Make the walk a round trip: the last rank passes its height to rank 0. And since listening first was slow, let everybody speak first.

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
draw.waits(caught.error, caption="Each arrow leads to the rank that could end the wait. The arrows "
           "form a circle, so no wait ever ends.")

# %% id="01-ff427d"
lucky = simulate(speak_first, world_size=4, buffered=True)
assert lucky.results == [3, 0, 1, 2]
print("where sends are buffered:", lucky.results)

# %% [markdown] id="01-fb7837"
# This is a *deadlock*: every rank waits for another, and the arrows of the *wait-for graph* lead back to where they began. Such a *circular wait* is one of the four conditions that every deadlock needs (Coffman and others, 1971), and the order of calls can rule it out. `run` compares what each rank has called, sees that the missing calls can never come, and says so. All four ranks are alive, so gloo alone would wait for its timeout, by default 30 minutes. Where sends are buffered, the same lines give the right answer. That is how deadlocks get into programs.
#
# ## Your turn: exchange
#
# **Required · 01.1 · difficulty ●○○ · about 15 minutes**
#
# Two ranks form the smallest circle. Write the function with which they swap tensors.
#
# **Goal.** Each of the two returns a new tensor that holds what the other one had; `mine` stays as it was. A rank may be its own partner. Then it returns a copy and sends nothing, because gloo refuses messages to oneself. Use only send and receive, in any form.
#
# The *core* level asks for pairs in worlds of 2 and 4 ranks, with contiguous float32 tensors. *Sturdy* adds ranks that are their own partner, empty tensors, other dtypes, and tensors that are not contiguous in memory, such as `x.T`. Gloo neither sends these nor receives into them: send `mine.contiguous()`, and receive into a contiguous tensor. (`torch.empty_like(mine)` and `mine.clone()` keep a transposed layout, unless you add `memory_format=torch.contiguous_format`.)
#
# <details>
# <summary>Hint: two ways out of the circle</summary>
#
# In the first way, the two partners do different things: one speaks first, and the other listens first. Each knows both ranks, its own and its partner's: let the comparison of the two decide who speaks first. In the second way, each partner first begins both messages, and only then waits. You cannot receive into the tensor that you are sending.
#
# </details>

# %% exercise="exchange" role="answer" points=10 required=true difficulty=1
def exchange(mine: torch.Tensor, partner: int) -> torch.Tensor:
    """Swap tensors with a partner.

    Both partners call it, each with the other's rank.

    Args:
        mine: this rank's tensor, of the same shape and dtype on both sides. It must not change.
        partner: the rank to swap with; may be this rank itself.

    Returns:
        A new tensor with what the partner had; a copy of ``mine`` if the partner is this rank.
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
            caption="Ranks 0 and 3 are partners, and so are 1 and 2. Afterwards each row should "
            "have its partner's colour.")

# %% exercise="exchange" role="check"
check(exchange)

# %% [markdown] id="01-02fc78"
# ## Break it: touch a tensor that is under way
#
# From `isend` or `irecv` until `wait()` returns, the tensor belongs to the message. Three rules follow:
#
# 1. **Do not read** a tensor that an `irecv` is filling. You may find old numbers, new ones, or some of each.
# 2. **Do not write** to a tensor that an `isend` is sending. The receiver may get either version. Reading it is fine.
# 3. **Wait for every Work.** Until you do, you do not know whether the message has left, and you do not hear of its errors.
#
# Breaking one of them is a *hazard*: on a fast network, in a small test, you usually get away with it. `simulate` runs the function twice, with different numbers in the tensors that are still to be filled, and compares the results.

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
# Back to the round trip, without its deadlock. One way out is `isend`. The other needs only `send` and `recv` in the right order: **even ranks send first, odd ranks receive first**. When n is odd, the last rank and rank 0 are both even, and both send first. Even so, it works for every n ≥ 2, as the proof below the hint shows.
#
# **Goal.** Every rank returns a new tensor that holds what its left neighbour had; rank 0 gets the last rank's. `mine` stays as it was, and only send and receive are used. *Core* plays 2 to 5 ranks; *sturdy* adds a single rank, more ranks, and 01.1's other tensors.
#
# <details>
# <summary>Hint: what is left to decide?</summary>
#
# First, who your neighbours are: `%` brings the rank after the last one back to 0. Second, where to receive: in a tensor of its own, since `mine` stays as it is. Third, what to do on a single rank, which is its own neighbour on both sides.
#
# </details>
#
# **Why it never gets stuck.** Suppose that some ranks are stuck for ever. A rank stuck in `send` waits for its right neighbour, and a rank stuck in `recv` for its left one. That neighbour is stuck too, or it would have made both of its calls. Can a stuck sender have a stuck receiver on its right?
#
# ```text
# rank 1 in send:   1 ──► 2     waits until rank 2 receives from it
# rank 2 in recv:   1 ◄── 2     waits until rank 1 sends to it
# ```
#
# No: both wait for the same message, and both have called, so it goes through. So the right neighbour of a stuck sender is stuck in `send`, and the left one of a stuck receiver in `recv`. Round the circle, either *all* ranks are stuck in `send`, or *all* in `recv`. Neither is possible: look at rank 0, which sends first, and rank 1, which receives first.
#
# * All in `send`? For rank 1 that is its second call. Its first, the recv from rank 0, is over. Then rank 0's send is over too, and rank 0 is not stuck in it.
# * All in `recv`? For rank 0 that is its second call. Its first, the send to rank 1, is over. Then rank 1's recv is over too, and rank 1 is not stuck in it.

# %% exercise="pass_right" role="answer" points=10 required=false difficulty=2
def pass_right(mine: torch.Tensor) -> torch.Tensor:
    """Send a tensor to the right neighbour, and get the left neighbour's.

    Every rank calls it while no other message is under way. The right neighbour of rank r is
    rank r + 1; the right neighbour of the last rank is rank 0.

    Args:
        mine: this rank's tensor, of the same shape and dtype on all ranks. It must not change.

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
draw.timeline(simulate(pass_right, torch.ones(1), world_size=5, network=network),
              caption="Five ranks, an odd number: each sends to the right, and none is stuck.")

# %% exercise="pass_right" role="check"
check(pass_right)

# %% [markdown] id="01-d37e7e"
# ## Tags
#
# Which recv takes which message? Between two ranks, messages stay in order: the first recv takes the first send, the second takes the second. A *tag*, a number that both sides give, sorts them into separate queues: a recv with tag 2 takes the first message with tag 2 and leaves the others alone. In the first cell below, rank 0 sends two letters, and rank 1 takes the second one first. That works because rank 0 begins both before it waits for either.
#
# **Break it.** The second cell calls the same function with `at_once=False`. Now rank 0 waits until the first letter has been taken, and only then sends the second. Rank 1 waits for the second letter first. Both wait for ever. No call is missing, but rank 1 asks for the letters in the other order. `run` reports what it sees where the two meet, a send with tag 1 and a recv with tag 2.

# %% id="01-e707d9"
def two_letters(at_once):
    first, second = torch.tensor([10.0]), torch.tensor([20.0])
    if dist.get_rank() == 1:
        first, second = torch.empty(1), torch.empty(1)
        dist.recv(second, src=0, tag=2)  # the second letter first
        dist.recv(first, src=0, tag=1)
    elif at_once:
        works = [dist.isend(first, dst=1, tag=1), dist.isend(second, dst=1, tag=2)]
        for work in works:
            work.wait()
    else:
        dist.send(first, dst=1, tag=1)
        dist.send(second, dst=1, tag=2)
    return first.item(), second.item()

assert run(lambda: two_letters(at_once=True), world_size=2).results == [(10, 20), (10, 20)]

# %% id="01-9c6bf5"
with expect(Mismatch):
    run(lambda: two_letters(at_once=False), world_size=2)

# %% [markdown] id="01-3307ff"
# ## Your turn: in_order
#
# **Optional · 01.3 · difficulty ●●○ · about 15 minutes**
#
# A message carries data, and it also carries *time*: after a recv, you know that everything the sender did before its send has happened (Lamport, 1978). Four ranks have to write to one file, rank 0 first, then rank 1, and so on. Neither a clock nor `time.sleep` can guarantee that. A message that is passed from rank to rank can.
#
# **Goal.** `in_order(work)` calls `work()` once on every rank, on rank 0 first. No rank begins before the previous one has finished, however long that takes. Use send and receive only, and no `barrier()`: in a barrier every rank waits for all others, and here it has to wait for one. *Sturdy* adds a single rank and more ranks.
#
# <details>
# <summary>Hint: what does the message say?</summary>
#
# It needs no content: the next rank must know only that it has arrived. Such a *token* may be an empty tensor. Two ranks are special. Which one begins without being told, and which one has nobody left to tell?
#
# </details>

# %% exercise="in_order" role="answer" points=10 required=false difficulty=2
def in_order(work: Callable[[], None]) -> None:
    """Call ``work()`` on rank 0, then on rank 1, and so on: one at a time.

    Every rank calls it while no other message is under way.

    Args:
        work: takes no argument and returns nothing. How long it takes differs from rank to rank.
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
    in_order(lambda: compute(1 + dist.get_rank() % 2))  # seconds

draw.timeline(simulate(shift, world_size=4, network=network),
              caption="Each rank should start to compute after the rank above it has finished.")

# %% exercise="in_order" role="check"
check(in_order)

# %% [markdown] id="01-644726"
# ## Measured: what a message costs
#
# Two real processes play *ping-pong*: rank 0 sends a tensor, rank 1 sends it back, and half of the round trip is one message. They play thirty rounds of twelve sizes, from 4 bytes to 16.8 MB. For each size the shortest time counts, because it was disturbed least. Both axes are logarithmic.
#
# **Predict.** The largest message has about four million times as many bytes as the smallest. How many times as long does it take?

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
assert sizes[-1] == 16_777_216 == 4_194_304 * sizes[0]
one_way = run(ping_pong, sizes, world_size=2).results[0]
growth = one_way[sizes[-1]] / one_way[4]
assert growth < 4_194_304 / 100
print(f"from the smallest to the largest: bytes {sizes[-1] // 4:,}×, time ~{growth:.0f}×")
draw.lines({"gloo, two processes": (sizes, [1e6 * one_way[s] for s in sizes])}, "bytes",
           "µs, one way", loglog=True,
           caption="Small messages all cost about the same; large ones cost by the byte.")

# %% [markdown] id="01-27c179"
# On the left the curve is nearly level: a message of 4 bytes costs about as much as one of a few thousand, and most of the time is latency. On the right the time grows with the bytes.
#
# ## In practice
#
# In training, point-to-point messages carry numbers between the parts of a model that is divided among ranks. PyTorch's own pipelines use **`batch_isend_irecv`**: a list of operations that begin together, in any order. Here the ranks smooth the heights: each becomes the mean of itself and its two neighbours. At the two ends of its block a rank needs one height from each neighbour, its *halo*. `wide` is the block with one more place at each end. The first and last ranks lack a neighbour, and keep a copy of their own height in its place.

# %% id="01-1e93cf"
def smooth(heights):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = heights.tensor_split(world_size)[rank]
    wide = torch.cat([mine[:1], mine, mine[-1:]])  # its first and last place are the neighbours'
    batch = []
    for peer, end in ((rank - 1, slice(0, 1)), (rank + 1, slice(-1, None))):
        if 0 <= peer < world_size:
            batch.append(dist.P2POp(dist.isend, mine[end], peer))
            batch.append(dist.P2POp(dist.irecv, wide[end], peer))
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return (wide[:-2] + wide[1:-1] + wide[2:]) / 3

smoothed, padded = run(smooth, heights), torch.cat([heights[:1], heights, heights[-1:]])
assert torch.equal(torch.cat(smoothed.results), (padded[:-2] + padded[1:-1] + padded[2:]) / 3)
assert [smoothed.trace.bytes_sent(rank) for rank in range(4)] == [4, 8, 8, 4]

# %% [markdown] id="01-c8cd81"
# **On NCCL, a batch is the way to exchange**, and three things differ from this page:
#
# * *NCCL ignores tags.* The two letters from above would arrive in the order in which they were sent, each in the other's tensor, without an error.
# * *A lone isend and a lone irecv may be queued on the GPU, one behind the other.* If both ranks queue their send first, each waits for a recv that stands behind the other's send. The calls of a batch progress together.
# * *`wait()` does not stop the CPU.* It makes the GPU wait instead. So a CPU clock measures only the call, and `in_order` would delay the GPU but not the CPU code that writes your file.
#
# ## Roads not taken
#
# * **Receiving from anybody**: `recv` without `src` takes whatever comes and returns the sender's rank. The result then depends on who is faster, so name your peer where you can.
# * **One-sided access**, as in MPI's windows and in NVSHMEM: a rank writes into another rank's memory. Nobody calls recv, but nothing tells the other rank when to read.
#
# ## What you can do now
#
# * ☑ send a tensor to a peer and receive one, time messages, begin them now and wait for them later;
# * ☑ say when a send is over, under both rules, and why a program has to be right under the stricter one;
# * ☑ read a deadlock, draw its circle, and rule one out by the order of calls;
# * ☑ name what you must not touch before `wait()`;
# * ☑ tell messages apart by order and by tag, and say why NCCL sees only the order;
# * ☑ swap tensors, pass them around a ring, and take turns without a clock.
#
# **Next**, many messages become one call: [02, collectives](02_collectives.ipynb), built from send and receive.
#
# ## Sources
#
# * PyTorch: [Point-to-point communication](https://docs.pytorch.org/docs/stable/distributed.html#point-to-point-communication) (send, recv, isend, irecv, batch_isend_irecv, tags) · [pytorch#94819](https://github.com/pytorch/pytorch/issues/94819) (NCCL and tags) · [distributed_c10d.py](https://github.com/pytorch/pytorch/blob/main/torch/distributed/distributed_c10d.py) (send and recv as isend and irecv with a wait) · [Pipeline parallelism](https://docs.pytorch.org/docs/stable/distributed.pipelining.html), whose schedules call `batch_isend_irecv`
# * NVIDIA: [NCCL, point-to-point communication](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html) (grouped calls) · [nccl#479](https://github.com/NVIDIA/nccl/issues/479) (both send first) · [nccl#783](https://github.com/NVIDIA/nccl/issues/783) (a send may block until its recv) · [NVSHMEM](https://docs.nvidia.com/nvshmem/api/) (one-sided access)
# * Message Passing Interface Forum, [*MPI: A Message-Passing Interface Standard*, version 4.0](https://www.mpi-forum.org/docs/mpi-4.0/mpi40-report.pdf), 2021: in chapter 3 the sections on communication modes and on the semantics of point-to-point communication (when a send is over; unsafe programs); chapter 12 (one-sided communications)
# * E. G. Coffman, M. J. Elphick, A. Shoshani, *System Deadlocks*, ACM Computing Surveys 3(2), 1971, [doi:10.1145/356586.356588](https://doi.org/10.1145/356586.356588)
# * L. Lamport, *Time, Clocks, and the Ordering of Events in a Distributed System*, Communications of the ACM 21(7), 1978, [doi:10.1145/359545.359563](https://doi.org/10.1145/359545.359563)
# * R. W. Hockney, *The communication challenge for MPP: Intel Paragon and Meiko CS-2*, Parallel Computing 20(3), 1994, [doi:10.1016/S0167-8191(06)80021-9](https://doi.org/10.1016/S0167-8191(06)80021-9)
