# %% [markdown] id="04-f0ed45"
# # Sum a tensor round a ring
#
# **Sum a tensor over any number of ranks for the price of two.**
#
# ![Six steps of four ranks, as recorded: partial sums go round a ring until each rank has finished one, then the finished ones go round](../../figures/04_ring_all_reduce.png)
#
# *Where this goes: four ranks, four chunks, six steps. A stripe of colour is a rank that is in this sum.*
#
# | | |
# |---|---|
# | **Do** | sum a tensor the naive way and count the waste, watch chunks go round, write the ring yourself, play it with 1024 ranks, meet a famous wrong one |
# | **Learn** | reduce-scatter then all-gather; the least that can be sent; when steps cost more than bytes; what Baidu, Horovod, NCCL and gloo made of it |
# | **Need** | lessons [01](01_point_to_point.ipynb) (`isend`, `recv`, `wait`), [02](02_collectives.ipynb) (reduce_scatter, all_gather) and [03](03_cost_model.ipynb) (α, β) |
# | **Time** | 60 minutes (estimated), one required exercise, three optional ones |

# %% [markdown] id="04-9e20c7"
# ## The problem, and two naive answers
#
# `all_reduce` is the call that training with many ranks leans on most: in each step it replaces every gradient by the sum over all ranks. What happens inside of it?
#
# A case for pen and paper: four ranks, four numbers each. Rank r holds 1, 2, 3, 4 times 10^r. So a sum spells who is in it: 2222 is everybody, 202 only ranks 0 and 2. One process adds them up; that is our *reference*.
#
# The first naive answer is the star of lesson 03: all send to one root, which adds and sends back. The root's link carries (n−1)·S each way while the others stand idle.
#
# The second has no root. All ranks stand in a ring. Each sends its tensor to the right, and from then on passes on what came from the left, adding it to a total of its own. After n−1 steps everybody has seen everything. The picture shows what that costs.

# %% id="04-2e7bc8"
import math
import time

import torch
import torch.distributed as dist
from torch import Tensor

from course_lib import CheckFailed, Network, check, draw, expect, run, simulate

def numbers(rank):
    return torch.tensor([1.0, 2.0, 3.0, 4.0]) * 10**rank

def summed_by(way, holds=numbers):  # what a rank holds once way() has summed it in place
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
assert {naive.trace.bytes_sent(rank) for rank in range(4)} == {3 * 16}
draw.traffic(naive, caption="Each rank sends 48 bytes, three whole tensors of 16 bytes.")

# %% [markdown] id="04-39306c"
# ## Where the waste is
#
# The load is even now, and it is as heavy on everybody as it was on the star's root: every rank sends (n−1)·S, and every rank does the same additions as all the others.
#
# Nobody needs to add everything. Let rank r be responsible for *one chunk*, an n-th of the tensor: it collects this chunk from the others, adds it up, and tells them the result. Everybody is the root of a star, for an n-th of the bytes.
#
# You know both halves from lesson 02. The first is **reduce_scatter**: afterwards rank r has chunk r of the sum. The second is **all_gather**: afterwards everybody has all chunks. Each half moves (n−1)/n·S out of every rank. Together they *are* an all_reduce.

# %% id="04-c23e3d"
def in_two_halves():
    mine, chunk, total = numbers(dist.get_rank()), torch.empty(1), torch.empty(4)
    dist.reduce_scatter_single(chunk, mine)
    dist.all_gather_single(total, chunk)
    return {"start": mine, "reduce_scatter": chunk, "all_gather": total}

halves = run(in_two_halves)
assert all(torch.equal(result["all_gather"], reference) for result in halves.results)
draw.values(halves, caption="reduce_scatter leaves each rank one finished chunk, "
            "and all_gather hands them round.")

# %% [markdown] id="04-69b5f2"
# ## Round the ring, chunk by chunk
#
# Both halves can be done with two neighbours alone. Follow chunk 0. It sets out from rank 0 with rank 0's number in it. Rank 1 adds its own and sends it on, so does rank 2, so does rank 3: after three steps the chunk has met everybody and is finished. The other chunks travel at the same time, each starting from the rank of its own number. In every step every rank sends one chunk to the right and receives another one from the left. That is the first half.
#
# Then the finished chunks go round once more. Whoever receives one no longer adds; it replaces what it had.
#
# The table `SENDS` writes that down for four ranks: a row is a step, a column a rank, the entry a chunk's number. `ring_of_four` follows the table. It works in place, because `chunk` returns views, and its bare `yield` lets us look at the tensor after each step.
#
# **Predict.** After three steps one chunk on rank 0 is finished. Which? (Put its number in place of `None`.)

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
        target = parts[row[rank - 1]]  # the left neighbour's column
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

def who(value):  # is in this sum: its digits tell
    return {rank for rank in range(4) if int(value) // 10**rank % 10}

ring = run(filmed)
assert all(film[-1] == reference.tolist() for film in ring.results)
film = [[[who(value) for value in rank[step]] for rank in ring.results] for step in range(7)]
finished = film[3][0].index({0, 1, 2, 3})
print(f"your guess: {guess}   recorded: chunk {finished}")
assert finished == 1
draw.frames(film, caption="Who is in which chunk. In three steps each rank finishes one chunk; "
            "in three more the finished ones reach everybody.")

# %% [markdown] id="04-c7c36b"
# Rank r finishes chunk r+1: the chunk that set out at its right neighbour and has come all the way round. Mind that number: a second half that sets out with chunk r hands round sums that are not finished.
#
# ## What it costs
#
# There are 2(n−1) steps, n−1 in each half. A step is one message of S/n bytes on every link, which takes α + S/n·β. All links work at once, so
#
# **T = 2(n−1)·(α + S/n·β)**  (Thakur, Rabenseifner and Gropp, 2005, without the time for adding),
#
# with T and α in seconds, S in bytes, β in seconds per byte. The modelled network has α = 5 µs and 1/β = 25 GB/s. For one megabyte on four ranks that makes six steps of 5 + 10 µs, 90 µs in all, where the star takes 2(α + 3Sβ) = 250 µs. The simulated ring agrees to nine digits, and its timeline shows why it is good: nobody waits for another, and every step uses every link.

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
# A rank sends 2(n−1) chunks of S/n bytes, **2(n−1)/n·S**, which is less than 2S however many ranks there are: the price of two tensors. Can one do with less?
#
# Follow one element. Before any rank can know its sum, each of the other n−1 ranks has to send a message with its own contribution in it. And when the first rank knows the sum, n−1 others do not, and each has to be told. So every element makes at least 2(n−1) trips, S bytes of elements make 2(n−1)·S bytes of messages, and the busiest of n ranks sends at least an n-th of them: 2(n−1)/n·S. The ring reaches this bound exactly (Patarasuk and Yuan, 2009). It is also the factor in lesson 03's bus bandwidth.
#
# To count for more than four ranks, contents do not matter. `only_the_messages` sends what a ring sends, and computes nothing.
#
# **Predict.** At 64 ranks the naive ring sends 63 whole tensors a rank. How many tensors' worth does the chunked one send?

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
for n, job in rings.items():
    assert math.isclose(job.seconds, 2 * (n - 1) * (alpha + S / n * beta), rel_tol=1e-9)
    assert all(job.trace.bytes_sent(rank) == 2 * (n - 1) * S // n for rank in range(n))
messages = len(rings[64].trace.of(0)) // 2  # each with a send and a recv
print(f"your guess: {guess}   recorded: {chunks[-1]} tensors in {messages} messages")
print(f"a billion gradients, 4 GB: {4 * whole[-1]:.0f} GB or {4 * chunks[-1]:.1f} GB a rank")

# %% id="04-81b19b"
bound = [2 * (n - 1) / n for n in worlds]
assert chunks == bound and whole == [n - 1 for n in worlds]
curves = {"chunked ring": chunks, "naive ring": whole, "2(n − 1)/n": bound}
draw.lines({name: (worlds, sent) for name, sent in curves.items()}, formulas=["2(n − 1)/n"],
           xlabel="ranks n", ylabel="tensors sent by each rank", exact=True, caption="Recorded: "
           "the naive ring sends n − 1 tensors from each rank, the chunked one less than two.")

# %% [markdown] id="04-b6ccd2"
# ## Your turn: ring_all_reduce
#
# **Required · 04.1 · difficulty ●●○ · about 25 minutes**
#
# The table knows four ranks, and lengths that four divides. Write the ring for any number of ranks.
#
# **Goal.** In place: afterwards every rank's `tensor` holds the sum. Use send and receive alone, in whatever form. **Budget:** each rank sends to one neighbour only, the same one every time, and receives from the other; at most 2(n−1) messages a rank, of at most ⌈length/n⌉ elements each.
#
# *Core* asks for 2 to 5 ranks, float32, contiguous, a length that n divides. *Budget* counts. *Sturdy* adds one rank, eight ranks and more, any length (also 0, also less than n), other dtypes and tensors whose elements do not lie side by side. Too much at once? Take the two halves first, 04.2 and 04.3 below.
#
# <details>
# <summary>Hint: which chunk, in which step?</summary>
#
# Read a column of `SENDS` instead of a row: rank 0 sends 0, 3, 2, 1, 0, 3. Rank 1 sends 1, 0, 3, 2, 1, 0. What a rank sends is always what arrived in the step before, in both halves. Python's `%` is never negative.
#
# </details>
# <details>
# <summary>Hint: any length, any stride</summary>
#
# `tensor_split(n)` makes n views for any length, some of them empty; `chunk(n)` may make fewer. Both return a tuple, in which `chunks[i] += x` is an error and `chunks[i].add_(x)` is not. A tensor with strides cannot be sent, and `reshape(-1)` of one is a copy: whatever you add to it has to be written back.
#
# </details>

# %% exercise="ring_all_reduce" role="answer" points=10 required=true difficulty=2
def ring_all_reduce(tensor: Tensor) -> None:
    """Replace the tensor, on every rank, by the sum over all ranks, along a ring.

    Every rank calls it with a tensor of the same shape and dtype. It works in place; a rank that
    is alone keeps what it has.

    Args:
        tensor: any length, shape and stride; floats, int32 or int64.

    Budget, with n ranks: a rank sends to one of its neighbours only and receives from the other,
    at most 2(n − 1) messages of at most ⌈length/n⌉ elements; no collective is called.

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
            caption="Every column should hold the same sum on all ranks; six chunks are 24 bytes.")

# %% exercise="ring_all_reduce" role="check"
check(ring_all_reduce)

# %% [markdown] id="04-523f7c"
# ## Three more: the halves, and the formula
#
# **Optional · 04.2 ring_reduce_scatter ●●○ and 04.3 ring_all_gather ●○○ · about 10 minutes each**
#
# Here the tensor comes as a list of chunks, cut by somebody else. The first half adds in place and returns the index of the chunk that this rank has finished; what is in the other chunks afterwards is nobody's business. The second half is told that index, and fills in the rest. Any pattern of sends and receives that is right is accepted; there is no budget.
#
# **Goal of 04.3.** Do not assume that rank r owns chunk r, or r+1: look at `owned`. All you may rely on is that the owners are shifted evenly, rank r owning chunk (r + c) mod n, with the same c everywhere.
#
# **Optional · 04.4 ring_seconds ●○○ · about 5 minutes.** The time of a chunked ring as a function. Once it is right, its check cell prints your value beside the one that was recorded for 64 ranks.
#
# <details>
# <summary>Hint: may I receive straight into the chunk?</summary>
#
# While adding, no: your own contribution would be gone. While gathering, yes.
#
# </details>

# %% exercise="ring_reduce_scatter" role="answer" points=4 required=false difficulty=2
def ring_reduce_scatter(chunks: list[Tensor]) -> int:
    """Add up the chunks of all ranks, in place, so that each rank finishes another one.

    Every rank calls it with n contiguous 1-D chunks; chunk i has one length everywhere, perhaps 0.
    Returns the index of the chunk that now holds the sum; the others may hold anything.
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
draw.values(parts, caption="The chunk whose index a rank returned has all four colours.")

# %% exercise="ring_reduce_scatter" role="check"
check(ring_reduce_scatter)

# %% exercise="ring_all_gather" role="answer" points=3 required=false difficulty=1
def ring_all_gather(chunks: list[Tensor], owned: int) -> None:
    """Hand the finished chunks round, in place, until every rank has all of them.

    Every rank calls it with n contiguous 1-D chunks. Chunk ``owned`` is finished here, which is
    (rank + c) mod n with the same c; the others are leftovers of the right length and dtype.
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

    A message takes a latency of alpha seconds and beta seconds a byte. One rank alone: 0.
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
# The naive ring has a flaw that small integers hide. Each rank adds in another order, beginning with its own tensor, and floating-point sums depend on the order. Two ranks that should hold the same sum differ in the last digit. Training would let them drift apart, step by step.
#
# In the chunked ring each chunk is added up *once*, along one path, and then copied. All ranks end with the same bits. The last digits may differ from those of one process, or of another number of ranks; they never differ between ranks.

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
# The bytes are as few as can be. The steps are not: there are 2(n−1), and each waits for α. A **tree** needs fewer. Ranks add up in pairs, then pairs of pairs, until one has everything after ⌈log₂ n⌉ steps; then back the same way. Every message is the whole tensor, so it takes 2⌈log₂ n⌉·(α + S·β).
#
# `Network(collectives="messages")` plays torch's own calls on the modelled links: `all_reduce` as a chunked ring, `reduce` and `broadcast` as trees. At 64 ranks it agrees with our messages. A ring of 1024 ranks is 1024 · 2046 messages, which the network plays, in some seconds, without asking 1024 ranks to call `isend`. The first picture grows the world, the second one the tensor.

# %% id="04-1e4211"
def ring_way(elements):
    dist.all_reduce(torch.zeros(elements))

def tree_way(elements):
    total = torch.zeros(elements)
    dist.reduce(total, dst=0)
    dist.broadcast(total, src=0)

played, many = Network(collectives="messages"), (2, 8, 64, 256, 1024)
assert 2 * (many[-1] - 1) == 2046
took = {way: [simulate(way, S // 4, world_size=n, network=played).seconds for n in many]
        for way in (ring_way, tree_way)}
for n, by_ring, by_tree in zip(many, took[ring_way], took[tree_way], strict=True):
    assert math.isclose(by_ring, 2 * (n - 1) * (alpha + S / n * beta), rel_tol=1e-9)
    assert math.isclose(by_tree, 2 * math.ceil(math.log2(n)) * (alpha + S * beta), rel_tol=1e-9)
assert math.isclose(took[ring_way][2], rings[64].seconds, rel_tol=1e-9)
draw.lines({"ring": (many, took[ring_way]), "trees": (many, took[tree_way])}, xlabel="ranks",
           ylabel="time, s", loglog=True, exact=True,
           caption="64 KiB, simulated up to 1024 ranks: the ring pays for 2(n − 1) steps, "
           "trees for 2⌈log₂ n⌉.")

# %% id="04-68620f"
sizes = [4**k for k in range(5, 12)]  # bytes: 1 KiB to 4 MiB
slow = Network(latency=25e-6, bandwidth=1.25e9, collectives="messages")  # 10 Gb/s Ethernet
at = {way: [simulate(way, size // 4, world_size=16, network=slow).seconds for size in sizes]
      for way in (ring_way, tree_way)}
sooner = [by_ring < by_tree for by_ring, by_tree in zip(at[ring_way], at[tree_way], strict=True)]
print("of these sizes, the ring is faster from", sizes[sooner.index(True)], "bytes on")
assert sooner == [size > 100_000 for size in sizes]
draw.lines({"ring": (sizes, at[ring_way]), "trees": (sizes, at[tree_way])}, xlabel="bytes",
           ylabel="time, s", loglog=True, exact=True, caption="16 ranks on 10 Gb/s Ethernet, "
           "simulated: trees win while the tensor is small, the ring once it is large.")

# %% [markdown] id="04-fb6d6d"
# Libraries therefore keep several algorithms and choose by n and S. How to find the crossing, and what else there is between a ring and a tree, is the matter of a later lesson.
#
# ## On this machine: ring against gloo
#
# Now with real ranks and a real clock: our chunked ring, the naive one, and gloo's own `all_reduce`, each the median of five rounds on the slowest rank.
#
# Look at the picture, and do not rank algorithms by it. Four ranks here share a machine, perhaps two cores. There are no links that could be idle or busy: a "message" is a copy from memory to memory, made by the same cores that add. So what counts is how much is copied *in all*, and how many times a process must be woken, while the ring's merit is that no single link carries much. The times are shown, and no exercise is graded by them.

# %% id="04-dbb947"
elements = [4**k for k in range(6, 11)]  # 16 KiB to 4 MiB

def clocked(way):
    medians = []
    for tensor in map(torch.zeros, elements):
        took = []
        for _ in range(5):
            dist.barrier()
            start = time.perf_counter()
            way(tensor)
            took.append(time.perf_counter() - start)
        medians.append(sorted(took)[2])
    return medians

ways = {"chunked ring": by_the_table, "naive ring": pass_it_on,
        "gloo's all_reduce": dist.all_reduce}
clock = {name: torch.tensor(run(clocked, way).results).amax(0) for name, way in ways.items()}
draw.lines({name: ([4 * size for size in elements], times) for name, times in clock.items()},
           xlabel="bytes", ylabel="time, s", loglog=True,
           caption="Four real ranks on the cores of one machine: shown, not ranked, "
           "because no network is between them.")

# %% [markdown] id="04-6a60c9"
# ## Break it: the tutorial's ring
#
# For years PyTorch's own tutorial on distributed programming taught a ring all-reduce that adds the wrong tensor. Its function had two arguments, `send` and `recv`, and two buffers, `send_buff` and `recv_buff`. Messages went through the buffers; what it added up were the arguments. What arrived was passed on, and never added. It was reported in December 2019 (pytorch/pytorch#31572) and mended in June 2020 (pytorch/tutorials#1039).
#
# Here is the same mistake in our own words: everything is received, and the rank adds *its own* tensor again. **Predict:** four ranks of ones, so that the sum is four. What does the wrong ring say?

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
# Four: right, and for the wrong reason. With equal tensors on all ranks, n times one's own *is* the sum, so a test with `torch.ones` lets the mistake through. Give every rank numbers of its own when you test a collective. The mended tutorial is right, and it is still the naive ring of whole tensors, as its text says.
#
# ## In practice
#
# * **Who made it known.** Rings are older than deep learning. Baidu's post and library of 2017 (A. Gibiansky) brought the chunked ring to training; Horovod (Sergeev and Del Balso, 2018) began with Baidu's code, replaced it by NCCL, and packs small gradients into one buffer, because each call costs 2(n−1)·α. DistributedDataParallel packs, too: its *buckets* are in lesson 06.
# * **gloo** rings as well: a chunk is cut into smaller segments, so that one is added while the next is on its way.
# * **NCCL** runs several rings at once, since 2.4 also double binary trees, and chooses by size and topology; the variable `NCCL_ALGO` overrules it.
# * **On GPUs** our steps may stand still: NCCL carries out a GPU's sends and receives in order, and each rank's send waits for a receive that is queued behind its neighbour's own send. There, one step is a pair that starts together:
#
# ```python
# pair = [dist.P2POp(dist.isend, outbox, right), dist.P2POp(dist.irecv, inbox, left)]
# for work in dist.batch_isend_irecv(pair):
#     work.wait()
# ```
#
# That works on gloo, too. Nothing on this page was measured on a GPU.
#
# ## Roads not taken
#
# * **Recursive halving and doubling** (Rabenseifner, 2004) sends as few bytes in 2·log₂ n steps, to partners far away; it likes powers of two and a network on which distance costs nothing.
# * **Two trees at once**, no rank an inner node of both (Sanders, Speck and Träff, 2009): NCCL's way to few steps *and* few bytes.
# * **Both ways round** at once, half of the tensor to the right, half to the left, where a rank has a link of its own to either neighbour.
# * **A switch that adds** (NVLink SHARP) gets below the bound, which counts on ranks doing the adding.

# %% [markdown] id="04-7f9ff2"
# ## What you can do now
#
# * ☑ say what the naive ways cost, in bytes and in idle links;
# * ☑ build all_reduce from reduce-scatter and all-gather, and the two from a ring;
# * ☑ derive the least that must be sent, 2(n−1)/n·S, and show by a record that the ring sends no more;
# * ☑ predict a ring's time, and tell when a tree is faster;
# * ☑ explain why a stopwatch on one machine does not rank algorithms;
# * ☑ recognise the famous wrong ring, and write a test that it fails.
#
# **Next**, the sum goes to work: in [lesson 05](05_gradient_averaging.ipynb) four ranks average their gradients with it and train one model. Before this lesson came [lesson 03](03_cost_model.ipynb).
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
# * PyTorch, [Writing Distributed Applications](https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html) · the wrong ring: [pytorch/pytorch#31572](https://github.com/pytorch/pytorch/issues/31572), December 2019, mended in [pytorch/tutorials#1039](https://github.com/pytorch/tutorials/pull/1039), June 2020 · [`batch_isend_irecv`](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.batch_isend_irecv)
