# %% [markdown] id="04-f0ed45"
# # Sum a tensor round a ring
#
# **Sum a tensor over any number of ranks, for the price of sending it twice.**
#
# ![Six steps of four simulated ranks: in every step each rank sends a quarter of a megabyte to the right while it receives another from the left](../../figures/04_ring_all_reduce.png)
#
# *Where this goes: one megabyte is summed over four ranks. Six steps, and in each of them every rank sends and receives.*
#
# | | |
# |---|---|
# | **Do** | sum a tensor the naive way and count the waste, watch chunks go round, write the ring yourself, watch a ring of 1024 simulated ranks, meet a famous wrong ring |
# | **Learn** | reduce-scatter followed by all-gather; the least that can be sent; when steps cost more than bytes; what Baidu, Horovod, NCCL and gloo made of it |
# | **Need** | lessons [01](01_point_to_point.ipynb) (`isend`, `recv`, `wait`), [02](02_collectives.ipynb) (reduce_scatter, all_gather) and [03](03_cost_model.ipynb) (α, β) |
# | **Time** | about 70 minutes with the required exercise, 95 with the three optional ones as well |

# %% [markdown] id="04-9e20c7"
# ## The problem, and two naive answers
#
# Training on many ranks needs `all_reduce` more than any other call: in each step it replaces every gradient by the sum over all ranks. What happens inside it?
#
# Here is a case for pen and paper: four ranks with four numbers each. Rank r holds 1, 2, 3 and 4 times 10ʳ. The digits of a sum then show who is in it: 2222 contains all ranks, 202 only ranks 0 and 2. One process adds up the four tensors. That is our *reference*.
#
# The first naive answer is the star of lesson 03: every rank sends to one root, which adds and sends the sum back. The root's link carries (n−1)·S bytes in each direction, where S is the size of the tensor in bytes. Every other link carries only S and is idle for most of the time.
#
# The second answer has no root. The ranks form a ring. Each rank sends its tensor to the right. From then on it does two things with whatever arrives from the left: it adds it to a total of its own, and it passes it on unchanged. After n−1 steps every rank has seen every tensor. The picture shows what that costs.

# %% id="04-2e7bc8"
import math
import time

import torch
import torch.distributed as dist
from torch import Tensor

from course_lib import CheckFailed, Network, check, draw, expect, run, simulate

def numbers(rank):
    return torch.tensor([1.0, 2.0, 3.0, 4.0]) * 10**rank

def summed_by(way, holds=numbers):  # what this rank holds after way() has summed it in place
    tensor = holds(dist.get_rank())
    way(tensor)
    return tensor

reference = sum(numbers(rank) for rank in range(4))
print(reference.tolist())

# %% id="04-f6e553"
def pass_it_on(tensor):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total, passing = tensor.clone(), tensor
    for _ in range(world_size - 1):
        arriving = torch.empty_like(tensor)
        sent = dist.isend(passing, (rank + 1) % world_size)
        dist.recv(arriving, (rank - 1) % world_size)
        sent.wait()
        total += arriving
        passing = arriving
    tensor.copy_(total)

naive = run(summed_by, pass_it_on)
assert all(torch.equal(total, reference) for total in naive.results)
draw.traffic(naive, caption="Each rank sends 48 bytes: three whole tensors of 16 bytes.")

# %% [markdown] id="04-39306c"
# ## Where the waste is
#
# The load is now even, but it is as heavy on every rank as it was on the star's root: each rank sends (n−1)·S bytes, and each repeats the additions of all others.
#
# No rank needs to add everything. Make each rank responsible for *one chunk*, an n-th of the tensor: it collects this chunk from the other ranks, adds it up, and sends them the result. Every rank is then the root of a star of its own, which carries only an n-th of the bytes.
#
# This happens in two halves, and you know both from lesson 02. The first is **reduce_scatter**: afterwards every rank has one finished part of the sum. With torch's call, rank r has part r, its *block*. The second is **all_gather**: afterwards every rank has all parts. In each half every rank sends (n−1)/n·S bytes. Together the two *are* an all_reduce.

# %% id="04-c23e3d"
def in_two_halves():
    mine, chunk, total = numbers(dist.get_rank()), torch.empty(1), torch.empty(4)
    dist.reduce_scatter_single(chunk, mine)
    dist.all_gather_single(total, chunk)
    return {"start": mine, "reduce_scatter": chunk, "all_gather": total}

halves = run(in_two_halves)
assert all(torch.equal(result["all_gather"], reference) for result in halves.results)
draw.values(halves, caption="reduce_scatter leaves one finished chunk on each rank, "
            "and all_gather hands all of them to everybody.")

# %% [markdown] id="04-69b5f2"
# ## Round the ring, chunk by chunk
#
# On a ring both halves need messages between neighbours only. Follow chunk 0. It starts at rank 0, with rank 0's number in it. Rank 1 adds its own number and sends it on, rank 2 does the same, and rank 3 only adds. After three steps the chunk has met every rank and is finished. The other chunks travel at the same time: chunk k starts at rank k. In every step, every rank sends one chunk to the right and receives another one from the left. That is the first half.
#
# Then the finished chunks go round once more. A rank that receives one no longer adds; it replaces its own copy.
#
# The table `SENDS` writes this down for four ranks. Each row is a step, each column a rank, and each entry the number of the chunk that this rank sends. `ring_of_four` follows the table. It works in place, because `chunk` returns views. It pauses at `yield` after each step, so that we can look at the tensor. The picture plays what we saw: press Play, or use the arrow keys.
#
# **Predict.** After three steps, one chunk on rank 0 is finished. Which one? (Put its number in place of `None`.)

# %% id="04-8b7830"
SENDS = [
    [0, 1, 2, 3], [3, 0, 1, 2], [2, 3, 0, 1],  # reduce-scatter: what arrives is added
    [1, 2, 3, 0], [0, 1, 2, 3], [3, 0, 1, 2],  # all-gather: what arrives replaces
]

def ring_of_four(tensor):
    rank, parts = dist.get_rank(), tensor.chunk(4)
    for step, row in enumerate(SENDS):
        arriving = torch.empty_like(parts[0])
        sent = dist.isend(parts[row[rank]], (rank + 1) % 4)
        dist.recv(arriving, (rank - 1) % 4)
        sent.wait()
        target = parts[row[rank - 1]]  # what the left neighbour sent; for rank 0 that is row[-1]
        target.copy_(target + arriving if step < 3 else arriving)
        yield

def by_the_table(tensor):
    for _ in ring_of_four(tensor):
        pass

# %% id="04-5a525a"
guess = None

# %% id="04-aa291d"
def filmed():
    tensor = numbers(dist.get_rank())
    return [tensor.tolist(), *(tensor.tolist() for _ in ring_of_four(tensor))]

def who(value):  # the ranks that are in this sum, read from its decimal digits
    return {rank for rank in range(4) if int(value) // 10**rank % 10}

ring = run(filmed)
assert all(film[-1] == reference.tolist() for film in ring.results)
film = [[[who(value) for value in rank[step]] for rank in ring.results] for step in range(7)]
finished = film[3][0].index({0, 1, 2, 3})
print(f"your guess: {guess}   recorded: chunk {finished}")
assert finished == 1
draw.steps(film, caption="Whose numbers are in each chunk. After three steps each rank holds one "
           "finished chunk; three more steps hand these to everybody.")

# %% [markdown] id="04-c7c36b"
# Rank r finishes chunk r+1 (the last rank finishes chunk 0): the chunk that started at its right neighbour and has come all the way round. Remember this r+1: a second half that starts with chunk r hands round sums that are not finished.
#
# This is not torch's rule, by which block r of the sum ends up on rank r. A library that follows torch's rule starts chunk r at rank r+1. Inside an all_reduce it does not matter who finishes which chunk.
#
# ## What it costs
#
# There are 2(n−1) steps, n−1 in each half. In each step every link carries one message of S/n bytes, which takes α + S/n·β. All links work at once, so
#
# $$T = 2(n-1)\left(\alpha+\frac{S}{n}\beta\right)$$
#
# (Thakur, Rabenseifner and Gropp, 2005, without the time for adding), with T and α in seconds, S in bytes and β in seconds per byte. In the modelled network α is 5 µs and 1/β is 25 GB/s. One megabyte on four ranks takes six steps of 5 + 10 µs, 90 µs in all, where the star takes 2(α + 3Sβ) = 250 µs. The simulated ring takes exactly that, as the cell asserts. Its timeline shows why it is fast: every link carries a message in every step, and no rank waits for a late neighbour.

# %% id="04-e61497"
alpha, beta = Network().latency, 1 / Network().bandwidth  # 5 µs; one over 25 GB/s
megabyte = simulate(by_the_table, torch.zeros(250_000), world_size=4)
assert math.isclose(megabyte.seconds, 6 * (alpha + 1e6 / 4 * beta), rel_tol=1e-9)
assert round(1e6 * megabyte.seconds) == 90 and round(1e6 * 2 * (alpha + 3 * 1e6 * beta)) == 250
draw.timeline(megabyte, between=(0, 43.5e-6), caption="One megabyte, simulated, the first three "
              "of six steps: in each of them every rank sends and receives.")

# %% [markdown] id="04-c213de"
# ## The least that anybody can send
#
# Each rank sends 2(n−1) chunks of S/n bytes, $\frac{2(n-1)}{n}S$ in all. That is less than 2S, the size of two tensors, however many ranks there are. Could it be less still?
#
# Follow one element, message by message, and stop as soon as some rank knows the sum over all ranks. Each of the other n−1 ranks must have sent a message by now, so n−1 messages have arrived. But these n−1 ranks do not know the sum yet, so each of them still has to receive a message: n−1 more. Every element therefore takes at least 2(n−1) messages, and the whole tensor at least 2(n−1)·S bytes. The busiest of the n ranks sends at least an n-th of that: 2(n−1)/n·S. The ring reaches this bound exactly (Patarasuk and Yuan, 2009). You have met the factor in lesson 03, in the bus bandwidth.
#
# To count bytes we do not need the numbers. `only_the_messages` sends what a ring of any size sends, and computes nothing.
#
# **Predict.** With 64 ranks, each rank of the naive ring sends 63 whole tensors. How many tensors' worth of bytes does each rank of the chunked ring send?

# %% id="04-b0abad"
guess = None

# %% id="04-b18987"
def only_the_messages(nbytes):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    outbox = torch.zeros(nbytes // 4 // world_size)
    arriving = torch.empty_like(outbox)
    for _ in range(2 * (world_size - 1)):
        sent = dist.isend(outbox, (rank + 1) % world_size)
        dist.recv(arriving, (rank - 1) % world_size)
        sent.wait()

S, worlds = 65_536, (2, 4, 8, 16, 32, 64)
rings = {n: simulate(only_the_messages, S, world_size=n) for n in worlds}
wholes = {n: simulate(pass_it_on, torch.zeros(S // 4), world_size=n) for n in worlds}
chunks, whole = ([job.trace.bytes_sent(0) / S for job in jobs.values()] for jobs in (rings, wholes))
print(f"your guess: {guess}   recorded: {chunks[-1]} tensors")
print(f"a billion gradients, 4 GB: {4 * whole[-1]:.0f} GB or {4 * chunks[-1]:.1f} GB per rank")

# %% id="04-81b19b"
bound = [2 * (n - 1) / n for n in worlds]
assert chunks == bound and whole == [n - 1 for n in worlds]
curves = {"chunked ring": chunks, "naive ring": whole, "the bound, 2(n − 1)/n": bound}
draw.lines({name: (worlds, sent) for name, sent in curves.items()}, "ranks n", "tensors per rank",
           loglog=True, formulas=["the bound, 2(n − 1)/n"], exact=True, caption="Recorded: the "
           "naive ring sends n − 1 tensors per rank, the chunked ring only the bound, less than 2.")

# %% [markdown] id="04-b6ccd2"
# ## Your turn: ring_all_reduce
#
# **Required · 04.1 · difficulty ●●○ · about 30 minutes**
#
# The table is made for four ranks, and for lengths that are divisible by four. Write the ring for any number of ranks and any length.
#
# **Goal.** Work in place: afterwards every rank's `tensor` holds the sum. Use only `send`, `recv`, `isend` and `irecv`, one by one or in a batch. **Budget:** each rank sends to one neighbour only, always the same one, and receives from its other neighbour (with two ranks, the same rank). It sends at most 2(n−1) messages of at most ⌈numel/n⌉ elements each, where numel is `tensor.numel()`.
#
# *Core* asks for 2 to 5 ranks and contiguous float32 vectors whose length is divisible by n. *Budget* counts messages and elements. *Sturdy* adds a single rank, eight and more ranks, any number of elements (also 0, also fewer than n; an empty chunk may be sent or skipped), matrices, other dtypes, and tensors whose elements do not lie side by side. If that is too much at once, do the two halves first: 04.2 and 04.3 below.
#
# <details>
# <summary>Hint: which chunk, in which step?</summary>
#
# Read a column of `SENDS` instead of a row: rank 0 sends 0, 3, 2, 1, 0, 3. Rank 1 sends 1, 0, 3, 2, 1, 0. After its first step a rank always sends the chunk that arrived in the step before, in both halves. Python's `%` is never negative.
#
# </details>
# <details>
# <summary>Hint: any length, any stride</summary>
#
# `tensor_split(n)` makes n views for any length, some of them empty; `chunk(n)` may make fewer. Both return a tuple. `chunks[i] += x` would assign to the tuple, which is an error; `chunks[i].add_(x)` works. A tensor that is not contiguous cannot be sent. `t.contiguous()` gives a copy that can; whatever you add to the copy has to be written back.
#
# </details>

# %% exercise="ring_all_reduce" role="answer" points=10 required=true difficulty=2
def ring_all_reduce(tensor: Tensor) -> None:
    """Replace the tensor, on every rank, by the sum over all ranks, along a ring.

    Every rank calls it with a tensor of the same shape and dtype. It works in place; a rank that
    is alone keeps what it has.

    Args:
        tensor: any shape, number of elements and strides; floats, int32 or int64.

    Budget, with n ranks: a rank sends to one neighbour only and receives from the other,
    at most 2(n − 1) messages of at most ⌈tensor.numel()/n⌉ elements; it calls no collective.

    With [1, 2], [10, 20] on two ranks both have [11, 22] afterwards.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)  # the tensor's own memory, or a copy of it
    chunks = flat.tensor_split(n)
    for step in range(2 * (n - 1)):
        mine, theirs = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        inbox = torch.empty_like(theirs)
        going = dist.isend(mine, (rank + 1) % n)
        dist.recv(inbox, (rank - 1) % n)
        going.wait()
        theirs.copy_(theirs + inbox if step < n - 1 else inbox)
    tensor.copy_(flat.view(tensor.shape))
    ### END SOLUTION

# %% exercise="ring_all_reduce" role="try"
mine = run(summed_by, ring_all_reduce)
print("bytes sent by each rank:", [mine.trace.bytes_sent(rank) for rank in range(4)])
draw.values(map(numbers, range(4)), mine, titles=["before", "after"],
            caption="Each column should hold the same sum on all ranks. Six chunks are 24 bytes.")

# %% exercise="ring_all_reduce" role="check"
check(ring_all_reduce)

# %% [markdown] id="04-523f7c"
# ## Three more: the halves, and the formula
#
# **Optional · 04.2 ring_reduce_scatter ●●○ and 04.3 ring_all_gather ●○○ · about 10 minutes each**
#
# Here somebody else has cut the tensor into a list of chunks.
#
# **Goal of 04.2.** Write the first half. It adds in place and returns the index of the chunk that this rank has finished; the other chunks may then hold anything.
#
# **Goal of 04.3.** Write the second half. It is given the index of the finished chunk as `owned`, and fills in the rest. Do not assume that rank r owns chunk r or r+1. You may rely on one thing: rank r owns chunk (r + c) mod n, with the same c on every rank. Both exercises accept any correct pattern of sends and receives; there is no budget.
#
# **Optional · 04.4 ring_seconds ●○○ · about 5 minutes.** Write the time of a chunked ring as a function. Once it is right, its check cell prints your value beside the one recorded for 64 ranks.
#
# <details>
# <summary>Hint: may I receive straight into the chunk?</summary>
#
# While adding, no: your own contribution would be lost. While gathering, yes.
#
# </details>

# %% exercise="ring_reduce_scatter" role="answer" points=4 required=false difficulty=2
def ring_reduce_scatter(chunks: list[Tensor]) -> int:
    """Add up the chunks of all ranks, in place, so that each rank finishes a different one.

    Every rank calls it with n contiguous 1-D chunks; chunk i has the same length on every rank,
    perhaps 0. Returns the index of the chunk that now holds the sum; the others may hold anything.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    now = rank
    for _ in range(n - 1):
        before = (now - 1) % n
        inbox = torch.empty_like(chunks[before])
        going = dist.isend(chunks[now], (rank + 1) % n)
        dist.recv(inbox, (rank - 1) % n)
        going.wait()
        chunks[before] += inbox
        now = before
    return now
    ### END SOLUTION

# %% exercise="ring_reduce_scatter" role="try"
def first_half():
    mine = list(numbers(dist.get_rank()).split(1))
    return ring_reduce_scatter(mine), [who(chunk) for chunk in mine]

indices, parts = zip(*run(first_half).results, strict=True)
print("returned:", indices)
draw.values(parts, caption="On each rank, the chunk whose index it returned has all four colours.")

# %% exercise="ring_reduce_scatter" role="check"
check(ring_reduce_scatter)

# %% exercise="ring_all_gather" role="answer" points=3 required=false difficulty=1
def ring_all_gather(chunks: list[Tensor], owned: int) -> None:
    """Hand the finished chunks round, in place, until every rank has all of them.

    Every rank calls it with n contiguous 1-D chunks of the right length and dtype. Only chunk
    ``owned`` is finished; owned = (rank + c) mod n, with the same c on all ranks.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    for step in range(n - 1):
        going = dist.isend(chunks[(owned - step) % n], (rank + 1) % n)
        dist.recv(chunks[(owned - step - 1) % n], (rank - 1) % n)
        going.wait()
    ### END SOLUTION

# %% exercise="ring_all_gather" role="check"
check(ring_all_gather)

# %% exercise="ring_seconds" role="answer" points=3 required=false difficulty=1
def ring_seconds(n: int, nbytes: int, alpha: float, beta: float) -> float:
    """Seconds that a chunked ring all-reduce of nbytes bytes takes on n ranks; adding is free.

    A message takes a latency of alpha seconds plus beta seconds per byte. One rank alone takes 0.
    """
    ### BEGIN SOLUTION
    return 2 * (n - 1) * (alpha + nbytes / n * beta)
    ### END SOLUTION

# %% exercise="ring_seconds" role="check"
verdict = check(ring_seconds)
yours, recorded = ring_seconds(64, S, alpha, beta), rings[64].seconds
print(f"yours: {1e6 * yours:.3f} µs   recorded: {1e6 * recorded:.3f} µs")
verdict

# %% [markdown] id="04-a9fe43"
# ## The same bits everywhere
#
# The naive ring has a flaw that small integers hide. Each rank adds in a different order, starting with its own tensor, and sums of floats depend on the order. Two ranks that should hold the same sum then often differ in the last digits. In training, their models would drift apart step by step.
#
# In the chunked ring each chunk is added up *once*, along one path, and then copied. All ranks end up with the same bits. The last digits may differ from those of one process, or of another number of ranks, but never between ranks.

# %% id="04-85c17e"
def fractions(rank):
    return torch.rand(1000, generator=torch.Generator().manual_seed(rank))

for name, way in {"naive ring": pass_it_on, "chunked ring": by_the_table}.items():
    sums = torch.stack(run(summed_by, way, fractions).results)
    differ = (sums != sums[0]).any(dim=0).sum().item()
    print(f"{name}: on {differ} of 1000 elements the ranks do not agree")
    assert (differ == 0) == (name == "chunked ring")

# %% [markdown] id="04-df4db5"
# ## A thousand ranks, and small tensors
#
# The ring sends as few bytes as possible. But it takes 2(n−1) steps, and each costs α. A **tree** takes fewer. Ranks add up in pairs, then in pairs of pairs. After ⌈log₂ n⌉ steps one rank has the sum, and as many steps take it back to the others. Every message is a whole tensor, so this takes 2⌈log₂ n⌉·(α + S·β).
#
# `Network(collectives="messages")` plays torch's own calls on the modelled links: `all_reduce` as a chunked ring, `reduce` and `broadcast` as trees. A ring of 1024 ranks is 1024 · 2046 messages. Playing them takes about ten seconds, on a busy machine half a minute; the cell prints a line per world size. In the first picture the number of ranks grows, in the second the size of the tensor.

# %% id="04-1e4211"
def ring_way(elements):
    dist.all_reduce(torch.zeros(elements))

def tree_way(elements):
    total = torch.zeros(elements)
    dist.reduce(total, dst=0)
    dist.broadcast(total, src=0)

played, many = Network(collectives="messages"), (2, 8, 64, 256, 1024)
took = {ring_way: [], tree_way: []}
for n in many:
    for way, times in took.items():
        times.append(1e6 * simulate(way, S // 4, world_size=n, network=played).seconds)
    print(f"ranks: {n:<6} ring: {took[ring_way][-1]:.0f} µs   trees: {took[tree_way][-1]:.0f} µs")
assert round(took[ring_way][2] * 1e-6, 12) == round(rings[64].seconds, 12) and 2 * (n - 1) == 2046
draw.lines({"ring": (many, took[ring_way]), "trees": (many, took[tree_way])}, xlabel="ranks",
           ylabel="time, µs", loglog=True, exact=True,
           caption="64 KiB, simulated: the ring takes 2(n − 1) steps, trees 2⌈log₂ n⌉.")

# %% id="04-68620f"
sizes = [4**k for k in range(5, 12)]  # bytes: 1 KiB to 4 MiB
slow = Network(latency=25e-6, bandwidth=1.25e9, collectives="messages")  # 10 Gb/s Ethernet
at = {way: [1e6 * simulate(way, size // 4, world_size=16, network=slow).seconds for size in sizes]
      for way in (ring_way, tree_way)}
sooner = [ring < tree for ring, tree in zip(at[ring_way], at[tree_way], strict=True)]
assert sooner == [size > 100_000 for size in sizes]
draw.lines({"ring": (sizes, at[ring_way]), "trees": (sizes, at[tree_way])}, xlabel="bytes",
           ylabel="time, µs", loglog=True, exact=True, caption="16 ranks on 10 Gb/s Ethernet, "
           "simulated: trees win below about 100 kB, the ring above.")

# %% [markdown] id="04-fb6d6d"
# Libraries therefore keep several algorithms and choose by n and S.
#
# ## On this machine: ring against gloo
#
# Now real ranks and a real clock: our chunked ring, the naive one, and gloo's own `all_reduce`, for a tensor of 1 MiB. Each number is the median of five calls, on the slowest rank, and each row is measured three times.
#
# Before you compare rows, see how much the numbers *within* a row differ. On one machine there are no links that could be idle or busy: a "message" is a copy from memory to memory, made by the same cores that add. The time depends on how much is copied *in all*. The merit of the ring is a different one: no single link carries much. A stopwatch on one machine cannot show that, so no exercise is graded by time.

# %% id="04-dbb947"
def clocked(way):
    tensor, took = torch.zeros(2**18), []
    for _ in range(5):
        dist.barrier()
        start = time.perf_counter()
        way(tensor)
        took.append(time.perf_counter() - start)
    return sorted(took)[2]

ways = {"chunked ring": by_the_table, "naive ring": pass_it_on, "gloo": dist.all_reduce}
for name, way in ways.items():
    three = [1e3 * max(run(clocked, way).results) for _ in range(3)]
    print(f"{name:<15}", "   ".join(f"{milliseconds:.1f} ms" for milliseconds in three))

# %% [markdown] id="04-6a60c9"
# ## Break it: the tutorial's ring
#
# For years PyTorch's own tutorial on distributed programming taught a ring all-reduce that adds the wrong tensor: what arrived was passed on, but never added. The mistake was reported in December 2019 (pytorch/pytorch#31572) and corrected in June 2020 (pytorch/tutorials#1039).
#
# Here is the same mistake in our own code: every rank receives everything, and adds *its own* tensor again. We try it on four ranks of ones, whose sum is four, and on our numbers.
#
# **Predict.** For which of the two does it give the right sum?

# %% id="04-83053f"
def famous(tensor):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total, passing, arriving = tensor.clone(), tensor.clone(), tensor.clone()
    for _ in range(world_size - 1):
        sent = dist.isend(passing, (rank + 1) % world_size)
        dist.recv(arriving, (rank - 1) % world_size)
        sent.wait()
        total += tensor  # not what has arrived
        passing, arriving = arriving, passing
    tensor.copy_(total)

ones, others = run(summed_by, famous, lambda rank: torch.ones(4)), run(summed_by, famous)
print("ones:   ", ones.results[0].tolist())
print("numbers:", others.results[0].tolist())
assert ones.results[0].tolist() == [4, 4, 4, 4] and not torch.equal(others.results[0], reference)

# %% id="04-6e4e9c"
famous.__name__ = "ring_all_reduce"  # check() finds the exercise by the name
with expect(CheckFailed):
    check(famous)

# %% [markdown] id="04-9210a0"
# With ones the result is four: right, for the wrong reason. Where all ranks hold equal tensors, n times your own tensor *is* the sum, so a test with `torch.ones` does not find the mistake. Give every rank different numbers when you test a collective.
#
# ## In practice
#
# * **Small tensors are packed.** Each call of a ring costs 2(n−1)·α, however few bytes it carries, so libraries put small gradients together before they sum them. Baidu brought the chunked ring to training in 2017; Horovod (Sergeev and Del Balso, 2018) packs its gradients into one buffer, and DistributedDataParallel packs them into *buckets* (lesson 06).
# * **gloo** also uses rings. **NCCL** runs several rings at once, and since version 2.4 also double binary trees. It chooses by size and topology; the variable `NCCL_ALGO` overrides the choice.
# * **On GPUs** our ring may hang. In a process group, NCCL carries out a rank's sends and receives in the order of the calls, and here every rank calls send first: each can wait for its neighbour's receive, which stands behind that neighbour's send. So start both together, as a pair, which works on gloo, too:
#
# ```python
# pair = [dist.P2POp(dist.isend, outbox, right), dist.P2POp(dist.irecv, inbox, left)]
# for work in dist.batch_isend_irecv(pair):
#     work.wait()
# ```
#
# ## Roads not taken
#
# * **Recursive halving and doubling** (Rabenseifner, 2004) sends as few bytes in 2·log₂ n steps, but to partners far away.
# * **Two trees at once** (Sanders, Speck and Träff, 2009) are NCCL's way to few steps *and* few bytes.
# * **A switch that adds** (NVLink SHARP) gets below the bound, which assumes that ranks do the adding.

# %% [markdown] id="04-7f9ff2"
# ## What you can do now
#
# * ☑ say what the naive ways cost, in bytes and in idle links;
# * ☑ build all_reduce from reduce-scatter and all-gather, and both of these from a ring;
# * ☑ derive the least that must be sent, 2(n−1)/n·S, and show from a recording that the ring sends no more;
# * ☑ predict how long a ring takes, and say when a tree is faster;
# * ☑ explain why a stopwatch on one machine cannot rank algorithms, and say what libraries made of the ring;
# * ☑ recognise the famous wrong ring, and write a test that catches it.
#
# **Next**, the sum goes to work: in [lesson 05](05_gradient_averaging.ipynb) four ranks average their gradients with it and train one model. The lesson before this one was [lesson 03](03_cost_model.ipynb).
#
# ## Sources
#
# * P. Patarasuk, X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, Journal of Parallel and Distributed Computing 69(2), 2009, [doi:10.1016/j.jpdc.2008.09.002](https://doi.org/10.1016/j.jpdc.2008.09.002)
# * R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of Collective Communication Operations in MPICH*, International Journal of High Performance Computing Applications 19(1), 2005, [doi:10.1177/1094342005051521](https://doi.org/10.1177/1094342005051521)
# * R. Rabenseifner, *Optimization of Collective Reduction Operations*, ICCS 2004, [doi:10.1007/978-3-540-24685-5_1](https://doi.org/10.1007/978-3-540-24685-5_1)
# * P. Sanders, J. Speck, J. L. Träff, *Two-tree algorithms for full bandwidth broadcast, reduction and scan*, Parallel Computing 35(12), 2009, [doi:10.1016/j.parco.2009.09.001](https://doi.org/10.1016/j.parco.2009.09.001)
# * A. Sergeev, M. Del Balso, *Horovod: fast and easy distributed deep learning in TensorFlow*, 2018, [arXiv:1802.05799](https://arxiv.org/abs/1802.05799)
# * Baidu Research, [Bringing HPC Techniques to Deep Learning](http://research.baidu.com/bringing-hpc-techniques-deep-learning/) and [baidu-allreduce](https://github.com/baidu-research/baidu-allreduce), 2017 · gloo, [gloo/allreduce.cc](https://github.com/pytorch/gloo/blob/main/gloo/allreduce.cc)
# * NVIDIA, [Massively Scale Your Deep Learning Training with NCCL 2.4](https://developer.nvidia.com/blog/massively-scale-deep-learning-training-nccl-2-4/), 2019 · [NCCL environment variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html) · [why send and receive belong in one group](https://github.com/NVIDIA/nccl/issues/479) · [what NVLink SHARP is](https://github.com/NVIDIA/nccl/issues/1031) · [nccl-tests: what bus bandwidth is](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)
# * PyTorch, [Writing Distributed Applications](https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html) · the wrong ring: [pytorch/pytorch#31572](https://github.com/pytorch/pytorch/issues/31572), December 2019, corrected in [pytorch/tutorials#1039](https://github.com/pytorch/tutorials/pull/1039), June 2020 · [`batch_isend_irecv`](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.batch_isend_irecv)
