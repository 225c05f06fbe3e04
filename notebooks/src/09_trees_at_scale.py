# %% [markdown] id="09-d053e6"
# # Choose an algorithm when latency rules
#
# **Reach a thousand ranks in ten rounds, and know from n and S which of four algorithms is the fastest.**
#
# ![A map with the number of ranks from left to right and the size of the tensor from bottom to top: a star is fastest for few bytes, recursive doubling in the middle, a ring for many bytes; simulated runs lie on it as points](../../figures/09_trees_at_scale.png)
#
# *Where this goes: the fastest of four all-reduces for each number of ranks and each size. Areas are formulas, points are simulated runs.*
#
# | | |
# |---|---|
# | **Do** | spread a tensor along a tree, sum by recursive doubling, draw the map above, count what leaves a node, simulate 32 nodes of eight GPUs |
# | **Learn** | rounds and their lower bound; what doubling costs and what it saves; when a hierarchy pays; what gloo and NCCL choose, as far as their sources say |
# | **Need** | lessons [03](03_cost_model.ipynb) (α, β), [04](04_ring_all_reduce.ipynb) (the ring) and [08](08_groups.ipynb) (groups) |
# | **Time** | about 60 minutes with the required exercise, 130 with the three optional ones as well |

# %% [markdown] id="09-12d30e"
# ## The problem: α, two thousand times
#
# The ring of lesson 04 sends as few bytes per rank as any algorithm can. It also takes 2(n−1) steps, and each costs α, however few bytes it carries. A loss that is averaged, a norm for clipping, a flag that says "stop": each takes a few bytes. On 1,024 ranks a ring passes them on 2,046 times.
#
# Eight ranks hold one number each, rank r the number 10^r. One process adds them up; that is the *reference*, and its digits show who is in a sum.
#
# The cell also prints how long a ring and a single message take in the modelled network. `Network(collectives="messages")` plays torch's own calls on the modelled links, `all_reduce` as a chunked ring.

# %% id="09-16f8c9"
import math

import torch
import torch.distributed as dist
from torch import Tensor

from course_lib import Deadlock, Network, check, draw, expect, run, simulate

def number():
    return torch.tensor([10 ** dist.get_rank()])

def summed_by(way):  # what a rank holds once way() has summed its number in place
    tensor = number()
    way(tensor)
    return tensor

reference = sum(10**rank for rank in range(8))
played, message = Network(collectives="messages"), Network().seconds(8)
ring = simulate(summed_by, dist.all_reduce, world_size=8, network=played)
assert all(total == reference for total in ring.results) and 2 * (1024 - 1) == 2046
print(f"one message: {1e6 * message:.2f} µs   ring of 8: {1e6 * ring.seconds:.2f} µs")

# %% [markdown] id="09-470cfa"
# ## One tells one, two tell two
#
# Begin with a broadcast: one rank has the tensor, and all others want it. The root tells one rank. Now two have it, and each of them tells one more. Then four tell four. The number of ranks that have the tensor doubles in every **round**. No algorithm needs fewer rounds: a rank that has nothing has nothing to pass on, and in a round a rank sends at most one message (the *one-port* model, see the box below). So n ranks take at least ⌈log₂ n⌉ rounds, where ⌈x⌉ rounds up. The pattern is a **binomial tree**: the tree of lessons 02 and 03.
#
# `ROUNDS` is this tree for eight ranks: who sends to whom, round by round. `by_the_table` follows it.

# %% id="09-9cca72"
ROUNDS = [[(0, 1)], [(0, 2), (1, 3)], [(0, 4), (1, 5), (2, 6), (3, 7)]]

def by_the_table(tensor):
    rank = dist.get_rank()
    for pairs in ROUNDS:
        for src, dst in pairs:
            if rank == src:
                dist.send(tensor, dst)
            if rank == dst:
                dist.recv(tensor, src)

def told_by_a_star():
    inbox, others = torch.zeros(2), range(1, dist.get_world_size())
    calls = [dist.isend(inbox, r) for r in others] if dist.get_rank() == 0 else [dist.irecv(inbox)]
    for work in calls:
        work.wait()

at_once = 1e6 * simulate(told_by_a_star, world_size=1024).seconds  # for comparison, below
megabyte = torch.zeros(250_000)
tree = simulate(by_the_table, megabyte, world_size=8)
assert math.isclose(tree.seconds, 3 * Network().seconds(1e6), rel_tol=1e-9)
draw.timeline(tree, caption="One megabyte, simulated: seven messages in three rounds. "
              "Hatched: a rank waits until another one tells it.")

# %% [markdown] id="09-fe360b"
# Each round carries the whole tensor, so the last rank has it after
#
# $$T = \lceil\log_2n\rceil(\alpha+S\beta)$$
#
# (Thakur, Rabenseifner and Gropp, 2005), with T and α in seconds, S in bytes and β in seconds per byte. The formula is exact where n is a power of two. Otherwise it is an upper bound: a rank sends its next message as soon as its previous one has left, before that one has arrived.
#
# **Predict.** With 8 ranks it was three rounds. After how many rounds do 1,024 ranks have a tensor of 8 bytes? (Put a number in place of `None`.)

# %% id="09-f7d762"
guess = None

# %% id="09-95646a"
def told():
    dist.broadcast(torch.zeros(2), src=0)

thousand = 1e6 * simulate(told, world_size=1024, network=played).seconds
rounds = round(1e-6 * thousand / message, 9)
print(f"your guess: {guess}   recorded: {rounds:.0f}, {thousand:.1f} µs   star: {at_once:.1f} µs")
assert (rounds, round(at_once, 1), round(1e6 * 1023 * message)) == (10, 5.3, 5115)

# %% [markdown] id="09-9ddccf"
# > **What overlaps.** In our model the *bytes* of messages on one link queue up; their *latencies* overlap. A root that calls 1,023 isends at once pays little more than one α: the star takes 5.3 µs above, the tree 50. In the textbooks' *one-port* model a rank has one message under way in each direction, and the star takes 5,115 µs. Real ranks are in between: each message costs a processor some time. Lower bounds in rounds hold in the one-port model. In rings and doubling messages follow one another, and the two models agree. In a tree they agree where n is a power of two.
#
# ## Your turn: tree_broadcast
#
# **Required · 09.1 · difficulty ●●○ · about 25 minutes**
#
# **Goal.** Write the tree for any number of ranks and any root, with `send`, `recv`, `isend` and `irecv` alone. It works in place: afterwards every rank's `tensor` is src's. **Budget:** in `simulate` the last rank has it after at most ⌈log₂ n⌉·(α + S·β); no rank sends more than ⌈log₂ n⌉ messages, none longer than the tensor. All together send n−1 tensors: n−1 ranks have to receive one, and none receives it twice.
#
# *Core* asks for 2 to 5 ranks and contiguous float32 vectors. *Budget* has up to 16 ranks, in one case up to 99, on fast links and slow ones. *Sturdy* adds one rank, up to 17 ranks, no elements, matrices, other dtypes and strided tensors. The cell below the stub plays yours on a thousand ranks. There nine messages are right: the tensor reaches a rank after as many messages as the rank's number, counted from the root, has ones in binary, and no number below a thousand has ten.
#
# <details>
# <summary>Hint: any root</summary>
#
# Number the ranks anew, from the root: place 0 is src, place p is rank (src + p) mod n. Write the tree for places, and turn a place into a rank only where a line names a peer.
#
# </details>
# <details>
# <summary>Hint: any n</summary>
#
# After k rounds the places below 2^k have the tensor. In the next round place p tells place p + 2^k, if there is such a place.
#
# </details>

# %% exercise="tree_broadcast" role="answer" points=10 required=true difficulty=2
def tree_broadcast(tensor: Tensor, src: int) -> None:
    """Replace the tensor, on every rank, by that of rank src, along a binomial tree.

    Every rank calls it with a tensor of the same shape and dtype, and with the same src. It works
    in place; a rank that is alone keeps what it has.

    Args:
        tensor: any shape, number of elements, strides and dtype.
        src: the rank whose tensor everybody gets, from 0 to n − 1.

    Budget, with n ranks: ⌈log₂ n⌉·(α + S·β) on the modelled network; at most ⌈log₂ n⌉ messages
    from each rank, none longer than the tensor, n − 1 tensors in all; no collective.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    place, have = (rank - src) % n, 1  # places below `have` have the tensor
    box = tensor.contiguous()  # the tensor itself, or a copy of it
    while have < n:
        if place < have and place + have < n:
            dist.send(box, (rank + have) % n)
        elif have <= place < 2 * have:
            dist.recv(box, (rank - have) % n)
        have *= 2
    tensor.copy_(box)
    ### END SOLUTION

# %% exercise="tree_broadcast" role="try"
def told_by_rank_3():
    tensor = torch.tensor([dist.get_rank()])
    tree_broadcast(tensor, src=3)
    return tensor.item()

yours = simulate(told_by_rank_3, world_size=1000)
print(yours.results.count(3), "have it;", f"time: {yours.seconds / message:.2f} messages")

# %% exercise="tree_broadcast" role="check"
check(tree_broadcast)

# %% [markdown] id="09-fa94e0"
# ## Recursive doubling: both ways at once
#
# An all-reduce could go up a tree to one rank, and the sum down again: 2⌈log₂ n⌉ rounds. But a link carries messages in both directions at once, and in a tree one direction is always idle. Let partners *exchange* what they have, and both add. After one round every pair has the pair's sum, then every four, then every eight. This is **recursive doubling**: log₂ n rounds for the whole all-reduce, if n is a power of two. `PARTNERS` has the partners of each rank: their numbers differ in one bit, so the partner of rank r in round k is `r ^ 2**k`.

# %% id="09-f9e377"
PARTNERS = [[rank ^ 2**k for rank in range(8)] for k in range(3)]

def in_pairs(tensor):
    for partners in PARTNERS:
        peer, arriving = partners[dist.get_rank()], torch.empty_like(tensor)
        sent = dist.isend(tensor, peer)
        dist.recv(arriving, peer)
        sent.wait()
        tensor += arriving
        yield  # here filmed() looks at the tensor, after each round

def filmed():
    tensor = number()
    return [tensor.item(), *(tensor.item() for _ in in_pairs(tensor))]

doubled = simulate(filmed, world_size=8)
assert all(film[-1] == reference for film in doubled.results)
assert math.isclose(doubled.seconds, 3 * message, rel_tol=1e-9)
who = [[{r for r in range(8) if total // 10**r % 10} for total in film]
       for film in doubled.results]
draw.values(who, caption="Whose numbers are in each rank's sum at the start and after each "
            "of three rounds: one, two, four, all eight.")

# %% [markdown] id="09-49baad"
# **What it costs.** Each of the log₂ n rounds takes α + S·β: every message is the whole tensor. Where n is no power of two, let p be the largest one below n. First the n − p extra ranks hand their tensors to others, then p ranks do the doubling, and at the end the extra ranks are sent the sum. That makes ⌊log₂ n⌋ + 2 rounds, where ⌊x⌋ rounds down: one more than ⌈log₂ n⌉.
#
# **The same bits.** In round k both partners add the same two numbers, and a + b is b + a to the last bit. So all ranks end with equal bits. If every rank adds up in an order of its own, the last bits may differ. PyTorch once had such an all-reduce for GPUs on NVLink: a program that branched on the last digit could hang (pytorch/pytorch#129501).
#
# **Optional · 09.2 recursive_doubling ●●● · about 30 minutes**
#
# **Goal.** Replace `tensor` on every rank by the sum over all, for any n, with the same bits on all ranks, without a collective. **Budget:** at most ⌈log₂ n⌉ + 1 messages from each rank, none longer than the tensor, and on the modelled network at most (⌈log₂ n⌉ + 1)·(α + S·β). All ranks together send at least 2(n−1) tensors; no all-reduce can do with fewer. *Core* has 2 to 5 ranks; *budget* and *sturdy* as in 09.1.
#
# <details>
# <summary>Hint: extra ranks</summary>
#
# `1 << (n.bit_length() - 1)` is p. Let rank p + i hand its tensor to rank i, and wait for the sum. Rank i does the rounds for both.
#
# </details>
# <details>
# <summary>Hint: twice too slow?</summary>
#
# If one partner sends first and then the other, a round takes two messages' time. Begin with `isend`.
#
# </details>

# %% exercise="recursive_doubling" role="answer" points=6 required=false difficulty=3
def recursive_doubling(tensor: Tensor) -> None:
    """Replace the tensor, on every rank, by the sum over all ranks, the same bits on all of them.

    Every rank calls it with a tensor of one shape and dtype (floats, int32, int64; any strides).
    Budget: ⌈log₂ n⌉ + 1 messages from each rank, none longer than the tensor, no collective, and
    (⌈log₂ n⌉ + 1)·(α + S·β) on the modelled network."""
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    power = 1 << (n.bit_length() - 1)
    total = tensor.clone(memory_format=torch.contiguous_format)
    inbox = torch.empty_like(total)
    if rank >= power:
        dist.send(total, rank - power)
        dist.recv(total, rank - power)
    elif rank + power < n:
        dist.recv(inbox, rank + power)
        total += inbox
    for k in range(n.bit_length() - 1 if rank < power else 0):
        going = dist.isend(total, rank ^ 2**k)
        dist.recv(inbox, rank ^ 2**k)
        going.wait()
        total += inbox
    if rank + power < n:
        dist.send(total, rank + power)
    tensor.copy_(total)
    ### END SOLUTION

# %% exercise="recursive_doubling" role="try"
def counted():
    tensor = torch.ones(2)
    recursive_doubling(tensor)
    return tensor[0].item()

yours = simulate(counted, world_size=1000)
print(yours.results.count(1000), "have it;", f"time: {yours.seconds / message:.2f} messages")

# %% exercise="recursive_doubling" role="check"
check(recursive_doubling)

# %% [markdown] id="09-463300"
# ## Which one is the fastest?
#
# Four ways to do an all-reduce, by the model, for n ≥ 2:
#
# | | time |
# |---|---|
# | star | $2(\alpha+(n-1)S\beta)$ |
# | doubling | $k(\alpha+S\beta)$, with k = log₂ n if n is a power of two, otherwise ⌊log₂ n⌋ + 2 |
# | ring | $2(n-1)\left(\alpha+\frac{S}{n}\beta\right)$ |
# | tree, up and down | $2\lceil\log_2n\rceil(\alpha+S\beta)$ |
#
# The star looks too good for small S, because its latencies overlap: see the box above. A real star loses earlier. The tree never wins: it takes 2⌈log₂ n⌉ rounds, and doubling at most ⌈log₂ n⌉ + 1 of the same cost.
#
# **Optional · 09.3 fastest ●○○ · about 10 minutes**
#
# **Goal.** Write the choice as a function. It returns `"star"`, `"doubling"`, `"ring"` or `"tree"`; if times are equal, the first of them in this order; for one rank, `"star"`. (The next section draws its map with these formulas: write yours first.)
#
# <details>
# <summary>Hint: logarithms without rounding errors</summary>
#
# For whole numbers n ≥ 1, `n.bit_length() - 1` is ⌊log₂ n⌋ and `(n - 1).bit_length()` is ⌈log₂ n⌉.
#
# </details>

# %% exercise="fastest" role="answer" points=3 required=false difficulty=1
def fastest(n: int, nbytes: int, alpha: float, beta: float) -> str:
    """The fastest all-reduce of nbytes bytes on n ranks: "star", "doubling", "ring" or "tree".

    The times are those of the table above, with alpha in seconds and beta in seconds per byte. Of
    equal times the first one, in this order, is returned; for one rank "star".
    """
    ### BEGIN SOLUTION
    if n == 1:
        return "star"
    down, up, whole = n.bit_length() - 1, (n - 1).bit_length(), alpha + nbytes * beta
    times = {
        "star": 2 * (alpha + (n - 1) * nbytes * beta),
        "doubling": (down if down == up else down + 2) * whole,
        "ring": 2 * (n - 1) * (alpha + nbytes / n * beta),
        "tree": 2 * up * whole,
    }
    return min(times, key=lambda name: times[name])
    ### END SOLUTION

# %% exercise="fastest" role="check"
check(fastest)

# %% [markdown] id="09-eef2b6"
# ## The map
#
# First the runs. `WAYS` has the four programs; ring and tree are torch's own calls, played as messages. Sizes go from 8 bytes to 1 GB, and 64 tensors of 1 GB do not fit into your memory. They need not, because the model knows only the product S·β. So a run that stands for S bytes sends 3,840, over links with 3,840/S of the bandwidth. It takes exactly the same time.

# %% id="09-771801"
def star(tensor):
    inboxes = {rank: torch.empty_like(tensor) for rank in range(1, dist.get_world_size())}
    if dist.get_rank() == 0:
        for work in [dist.irecv(inbox, rank) for rank, inbox in inboxes.items()]:
            work.wait()
        for work in [dist.isend(tensor + sum(inboxes.values()), rank) for rank in inboxes]:
            work.wait()
    else:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)

def doubling(tensor):  # for powers of two
    inbox = torch.empty_like(tensor)
    for distance in [2**k for k in range(10) if 2**k < dist.get_world_size()]:
        swap = [dist.P2POp(dist.isend, tensor, dist.get_rank() ^ distance),
                dist.P2POp(dist.irecv, inbox, dist.get_rank() ^ distance)]
        for work in dist.batch_isend_irecv(swap):
            work.wait()
        tensor += inbox

def tree(tensor):
    dist.reduce(tensor, dst=0)
    dist.broadcast(tensor, src=0)

# %% id="09-c82ead"
WAYS, SENT = {"star": star, "doubling": doubling, "ring": dist.all_reduce, "tree": tree}, 3840

def recorded(way, n, nbytes):
    scaled = Network(bandwidth=25e9 * SENT / nbytes, collectives="messages")
    job = simulate(lambda: WAYS[way](torch.zeros(SENT // 4)), world_size=n, network=scaled)
    return max(event.completed for event in job.trace.events)

places = [(n, nbytes) for n in (2, 4, 8, 16, 32, 64) for nbytes in (8, 2_000, 2e6, 1e9)]
times = {place: {way: recorded(way, *place) for way in WAYS} for place in places}
points = {way: [p for p in places if times[p][way] <= min(times[p].values()) * (1 + 1e-9)]
          for way in WAYS}
assert sum(map(len, points.values())) == len(places)  # no place has two fastest ways

def default(n, nbytes):  # simulate's own all_reduce
    scaled = Network(bandwidth=25e9 * SENT / nbytes)
    return simulate(lambda: dist.all_reduce(torch.zeros(SENT // 4)), world_size=n,
                    network=scaled).seconds

assert all(default(*place) < times[place]["ring"] for place in points["ring"])
print({way: len(points[way]) for way in WAYS}, "of", len(places), "places")

# %% [markdown] id="09-0e3218"
# Then the areas, from the formulas: `counts` has, for each way, the factors of α and of S·β. The assertion compares the two: all 96 runs lie on their formulas, to nine digits.

# %% id="09-d6a586"
a, b = Network().latency, 1 / Network().bandwidth

def formulas(n, nbytes):
    low, high = math.floor(math.log2(n)), math.ceil(math.log2(n))
    doubles = low + 2 * (high - low)
    counts = {"star": (2, 2 * (n - 1)), "doubling": (doubles, doubles),
              "ring": (2 * (n - 1), 2 * (n - 1) / n), "tree": (2 * high, 2 * high)}
    return {way: alphas * a + tensors * nbytes * b for way, (alphas, tensors) in counts.items()}

def five(n, nbytes):
    halving = 2 * math.ceil(math.log2(n)) * a + 2 * (n - 1) / n * nbytes * b
    return formulas(n, nbytes) | {"halving, then doubling": halving}

assert len(times) * len(WAYS) == 96 and not points["tree"]
assert all(math.isclose(seconds, formulas(*place)[way], rel_tol=1e-9)
           for place, row in times.items() for way, seconds in row.items())
ns = sorted({round(2 ** (k / 12)) for k in range(12, 121)})
rows = {nbytes: [min(t, key=t.get) for t in (formulas(n, nbytes) for n in ns)]
        for nbytes in (8 * 10 ** (k / 20) for k in range(163))}
draw.areas(ns, rows, {way: points[way] for way in WAYS if points[way]}, "ranks", "bytes",
           caption="The fastest of the four on links of 5 µs and 25 GB/s. Areas: formulas. Points: "
           "what simulated runs found. The tree wins nowhere.")

# %% [markdown] id="09-d6f05c"
# Read the map from bottom to top. For few bytes α counts, and the way with the fewest α wins. For many bytes S·β counts, and the ring sends the least. Doubling lies in between, and its area grows with n. Where n is no power of two, doubling takes two rounds more than for the power of two below: hence the ragged edges.
#
# There are others. **Rabenseifner's** all-reduce (2004) first *halves*: partners exchange the half that the other one is to finish, then a quarter, and so on; then doubling puts the parts together. It sends the ring's bytes in fewer steps: $2\lceil\log_2n\rceil\,\alpha+\frac{2(n-1)}{n}S\beta$. (If n is no power of two, it takes a little longer, which the map leaves out.) Without `collectives=`, `simulate` takes the smaller of this time and doubling's.

# %% id="09-b73347"
rows = {nbytes: [min(t, key=t.get) for t in (five(n, nbytes) for n in ns)] for nbytes in rows}
assert {n for row in rows.values() for n, way in zip(ns, row, strict=True) if way == "ring"} == {3}
draw.areas(ns, rows, {"halving, then doubling": points["ring"]}, "ranks", "bytes", caption="The "
           "map with a fifth way. Where the ring was fastest, simulate's own all_reduce is faster "
           "(points). With three ranks the ring stays: both take equally long there.")

# %% [markdown] id="09-1bf66d"
# ## What libraries choose
#
# | | all_reduce | broadcast |
# |---|---|---|
# | **gloo** in PyTorch 2.15 | a ring, whatever n and S; a second algorithm (*bcube*) runs only if the caller asks, and PyTorch does not | a binomial tree |
# | **NCCL** 2.20 | rings, double binary trees, or algorithms in which a switch adds, chosen by predicted time | a ring |
# | `simulate`, where you give no `collectives=` | by formula the faster of doubling and Rabenseifner's | by formula the faster of a tree, and scatter and all-gather |
#
# NCCL's choice is this lesson's map with measured numbers. Its source `src/graph/tuning.cc` has tables of latencies by kind of link and of bandwidths by GPU. For each algorithm it computes latency + bytes/bandwidth, and the smallest wins. Unlike ours, its trees are pipelined: the tensor travels in small pieces, so a tree's links all work at once, and a tree may win for middling sizes too.
#
# ## Nodes: fast inside, slow between
#
# A **node** is a machine, often with eight GPUs. Inside, NVLink joins them; between nodes there are network cards. Our numbers are those of a cluster in NVIDIA/nccl-tests#119: A100 GPUs on NVLink 3 (300 GB/s per GPU and direction), and four InfiniBand HDR cards per node (25 GB/s each, 100 GB/s in all). `Network.cluster` models it: ranks of one node share one link out and one link in.
#
# A **hierarchy** uses this. First a reduce-scatter within each node leaves each GPU with an eighth of the node's sum. Then each GPU sums its eighth with its counterparts on the other nodes. An all-gather within each node ends it. The cell compares its messages with those of a flat ring, on four nodes of four. `ring_of` makes both; it sends zeros, because only bytes count. Guess first: which sends most bytes out of a node, ring, hierarchy or doubling?

# %% id="09-bc6b6b"
def ring_of(ranks, nbytes, steps):
    here, outbox = ranks.index(dist.get_rank()), torch.zeros(nbytes // len(ranks) // 4)
    for _ in range(steps):
        sent = dist.isend(outbox, ranks[(here + 1) % len(ranks)])
        dist.recv(torch.empty_like(outbox), ranks[here - 1])
        sent.wait()

def flat(nbytes, g):
    n = dist.get_world_size()
    ring_of(range(n), nbytes, 2 * (n - 1))

def hierarchy(nbytes, g):
    rank, n = dist.get_rank(), dist.get_world_size()
    node, counterparts = range(rank // g * g, rank // g * g + g), range(rank % g, n, g)
    ring_of(node, nbytes, g - 1)
    ring_of(counterparts, nbytes // g, 2 * (n // g - 1))
    ring_of(node, nbytes, g - 1)

S = 16_000
jobs = {way: simulate(way, S, 4, world_size=16) for way in (flat, hierarchy)}
draw.traffic(*jobs.values(), titles=["flat ring", "hierarchy"],
             caption="16 kB on four nodes of four. In the flat ring one rank of each node talks to "
             "the next node. In the hierarchy all four do, each with a quarter of the tensor.")

# %% id="09-bc894b"
jobs[doubling] = simulate(doubling, torch.zeros(S // 4), world_size=16)
for way, job in jobs.items():
    leaving = [(m.src, m.nbytes) for m in job.trace.messages if m.src < 4 <= m.dst]
    by_rank = [sum(nbytes for src, nbytes in leaving if src == rank) for rank in range(4)]
    print(f"{way.__name__:<12} leaves node 0: {sum(by_rank):>7,} bytes   by rank: {by_rank}")
    assert sum(by_rank) == {flat: 30_000, hierarchy: 24_000, doubling: 128_000}[way]

# %% [markdown] id="09-12fc85"
# With N nodes of g ranks, each rank of the hierarchy sends 2(N−1)/N·S/g bytes to other nodes, and a node sends 2(N−1)/N·S. In the flat ring a node sends 2(n−1)/n·S: a quarter more on four nodes of four, hardly more on 32 nodes of eight. So against a *ring* the hierarchy saves few bytes, but many steps: it takes 2(N−1) between nodes and 2(g−1) inside them, instead of 2(n−1). Against *doubling* it saves bytes. For many bytes the flat ring overtakes it, because the three phases run one after another: while NVLink works, the network is idle.
#
# How much is that for 32 nodes of 8? The next cell plays hierarchy, flat ring and doubling, with an α of 2 µs on every link. It also plays a flat ring in which the one rank that talks to the next node has only one of the four cards.

# %% id="09-34b3cd"
def cluster(nbytes, cards=4):
    factor = nbytes / 16_384  # as on the map: a small tensor over slower links
    return Network.cluster(32, 8, Network(2e-6, 300e9 / factor, collectives="messages"),
                           Network(2e-6, cards * 25e9 / factor))

def ring_call():
    dist.all_reduce(torch.zeros(4096))

names = "hierarchy", "flat ring", "flat ring, one card", "doubling"
sizes, took = (2**16, 2**22, 2**28), {name: [] for name in names}
for nbytes in sizes:
    all_cards = {"world_size": 256, "network": cluster(nbytes)}
    jobs = (simulate(hierarchy, 16_384, 8, **all_cards), simulate(ring_call, **all_cards),
            simulate(ring_call, world_size=256, network=cluster(nbytes, 1)),
            simulate(doubling, torch.zeros(4096), **all_cards))
    for name, job in zip(names, jobs, strict=True):
        took[name].append(1e6 * job.seconds)
    print(f"{nbytes:>11,} bytes:", *(f"{name} {us[-1]:,.0f} µs  " for name, us in took.items()))
assert took["flat ring"][0] > 6 * took["hierarchy"][0] > 12 * took["doubling"][0]
assert took["doubling"][-1] > took["hierarchy"][-1]
assert took["flat ring"][-1] < took["hierarchy"][-1] < took["flat ring, one card"][-1] / 3
draw.lines({name: (sizes, us) for name, us in took.items()}, "bytes", "time, µs", loglog=True,
           exact=True, caption="32 nodes of 8 GPUs, simulated. For few bytes doubling is fastest, "
           "and a hierarchy needs less than a sixth of a flat ring's time. For many bytes doubling "
           "is slowest, and a flat ring with all four cards is just ahead of the hierarchy.")

# %% [markdown] id="09-82ef35"
# ## Is one link per rank right?
#
# Elsewhere, except in one experiment of lesson 17, each rank has a link of its own. That is right for GPUs on an NVSwitch, and for nodes in which each GPU has its own card, as in NVIDIA's DGX H100. It is wrong for eight GPUs that share four cards, or one: two that send at once get half each. `Network.cluster` queues them at the node's one link. It leaves out:
#
# * one rank alone gets the whole 100 GB/s, although a GPU mostly drives the card beside it;
# * the way from a GPU to its card, over PCIe, costs nothing;
# * nodes of a large network share the uplinks of their switches.
#
# So in the model a single flat ring is too fast, unless you give it one card. NCCL runs several rings at once, each through a card of its own, and so uses all four (NVIDIA/nccl#412).
#
# ## Your turn: hierarchical_all_reduce
#
# **Optional · 09.4 hierarchical_all_reduce ●●● · about 30 minutes**
#
# **Goal.** Replace `tensor` on every rank by the sum over all. Ranks 0 to g−1 share a node, so do the next g, and so on, with g = `gpus_per_node`, which divides n. Make groups as in lesson 08 and use any collectives in them, or send and receive. **Budget:** each rank sends at most 2(N−1)·⌈⌈numel/g⌉/N⌉ elements to other nodes, N = n/g. A collective counts as a ring of its group, in the order of ranks. If a rank's right neighbour in this ring is on another node, the rank sends it 2(m−1)/m of the tensor in an all_reduce on m ranks, (m−1)/m of the whole in an all_gather or reduce_scatter, and the whole tensor in any other collective.
#
# *Core* has 4 and 6 ranks and lengths that n divides. *Sturdy* adds one node, nodes of one GPU, up to 12 ranks, and any length, shape, dtype and strides.
#
# <details>
# <summary>Hint: any length</summary>
#
# Pad a flat copy with zeros to a multiple of g. `reduce_scatter_single` and `all_gather_single` want equal parts.
#
# </details>
# <details>
# <summary>Hint: groups</summary>
#
# Every rank calls `new_group` for every group, in the same order, and keeps the two that it is in. `dist.new_subgroups` and `dist.new_subgroups_by_enumeration` do this for you.
#
# </details>

# %% exercise="hierarchical_all_reduce" role="answer" points=6 required=false difficulty=3
def hierarchical_all_reduce(tensor: Tensor, gpus_per_node: int) -> None:
    """Replace the tensor, on every rank, by the sum over all ranks, node by node.

    Every rank calls it with a tensor of the same shape and dtype (floats, int32 or int64; any
    strides and number of elements), and the same gpus_per_node, which divides n. It works in
    place. Ranks r and s share a node where r // gpus_per_node == s // gpus_per_node.

    Budget, with N = n / gpus_per_node nodes: each rank sends at most
    2(N − 1)·⌈⌈tensor.numel() / gpus_per_node⌉ / N⌉ elements to other nodes.
    """
    ### BEGIN SOLUTION
    n, g = dist.get_world_size(), gpus_per_node
    node, _ = dist.new_subgroups(g)
    columns = [list(range(local, n, g)) for local in range(g)]
    across, _ = dist.new_subgroups_by_enumeration(columns)
    part = -(-tensor.numel() // g)
    padded = tensor.new_zeros(g * part)
    padded[: tensor.numel()] = tensor.flatten()
    mine = tensor.new_empty(part)
    dist.reduce_scatter_single(mine, padded, group=node)
    dist.all_reduce(mine, group=across)
    dist.all_gather_single(padded, mine, group=node)
    tensor.copy_(padded[: tensor.numel()].view(tensor.shape))
    ### END SOLUTION

# %% exercise="hierarchical_all_reduce" role="try"
def by_nodes_of_two():
    return summed_by(lambda tensor: hierarchical_all_reduce(tensor, 2))

print([total.item() for total in run(by_nodes_of_two).results], "should be", 1111)

# %% exercise="hierarchical_all_reduce" role="check"
check(hierarchical_all_reduce)

# %% [markdown] id="09-ff075e"
# ## Break it: a tree for powers of two
#
# Pictures of trees have eight ranks, and code made after them works for eight. Below, everybody who has the tensor tells somebody, whether or not there is such a rank. With six ranks, two ranks of the last round send to ranks 6 and 7; modulo six these are 0 and 1, which have the tensor and no longer receive. Open MPI once had a wrong size in a broadcast where the number of processes was no power of two (open-mpi/ompi#7523). So test with 3, 5 and 6 ranks, too.

# %% id="09-a4ea1f"
def for_powers_of_two(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    for have in (1, 2, 4):
        if rank < have:
            dist.send(tensor, (rank + have) % n)
        elif rank < 2 * have:
            dist.recv(tensor, rank - have)

simulate(for_powers_of_two, torch.zeros(2), world_size=8)
with expect(Deadlock):
    simulate(for_powers_of_two, torch.zeros(2), world_size=6)

# %% [markdown] id="09-bcec04"
# ## In practice
#
# * **Call `all_reduce` and `broadcast`.** Write your own only if you know more than the library.
# * **Send fewer, larger tensors.** Ten all-reduces of 8 bytes cost ten times as many α as one. Put losses, counts and flags into one tensor.
# * **On GPUs** `NCCL_ALGO=Tree` or `Ring` forces a choice, for experiments; `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=TUNING` prints NCCL's table of latencies and bandwidths.
# * **PyTorch's hierarchies**: hybrid sharding in FSDP shards inside a node and replicates across nodes, with the same two kinds of groups.
#
# ## Roads not taken
#
# * **Pipelined trees, two at once** (Sanders, Speck and Träff, 2009): what NCCL's trees are.
# * **Switches that add**: NVLink SHARP and InfiniBand SHARP.
#
# ## What you can do now
#
# * ☑ say why no broadcast takes fewer than ⌈log₂ n⌉ rounds, and write one that takes no more;
# * ☑ sum by recursive doubling on any number of ranks, with the same bits everywhere;
# * ☑ tell from n, S, α and β which algorithm is the fastest, and read the map;
# * ☑ count what leaves a node, and say what a hierarchy saves and what it does not;
# * ☑ say what gloo and NCCL choose, and where their sources say so.
#
# **Next:** [lesson 10](10_mini_ddp.ipynb) writes DistributedDataParallel.
#
# ## Sources
#
# * R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of Collective Communication Operations in MPICH*, International Journal of High Performance Computing Applications 19(1), 2005, [doi:10.1177/1094342005051521](https://doi.org/10.1177/1094342005051521)
# * R. Rabenseifner, *Optimization of Collective Reduction Operations*, ICCS 2004, [doi:10.1007/978-3-540-24685-5_1](https://doi.org/10.1007/978-3-540-24685-5_1)
# * P. Sanders, J. Speck, J. L. Träff, *Two-tree algorithms for full bandwidth broadcast, reduction and scan*, Parallel Computing 35(12), 2009, [doi:10.1016/j.parco.2009.09.001](https://doi.org/10.1016/j.parco.2009.09.001)
# * NCCL 2.20.3, [src/graph/tuning.cc](https://github.com/NVIDIA/nccl/blob/b6475625fbcaa2c3c0e50eed2fa1255d7514d4a2/src/graph/tuning.cc) · [NCCL environment variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html)
# * gloo, [gloo/allreduce.cc](https://github.com/pytorch/gloo/blob/5f206e5a2c7b7f4e9382b3ad2c79ee2463e18313/gloo/allreduce.cc) and [gloo/broadcast.cc](https://github.com/pytorch/gloo/blob/e00553106500ced82758029324acf69f03079a4e/gloo/broadcast.cc) · PyTorch, [ProcessGroupGloo.cpp](https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp), which names no algorithm. Newer gloo goes through shared memory where all ranks are on one machine; the gloo inside PyTorch 2.15 has no such code
# * The cluster: [NVIDIA/nccl-tests#119](https://github.com/NVIDIA/nccl-tests/issues/119) · several rings and cards: [NVIDIA/nccl#412](https://github.com/NVIDIA/nccl/issues/412) · eight cards for eight GPUs: NVIDIA, *DGX H100 User Guide*, network modules
# * Wrong ones: [open-mpi/ompi#7523](https://github.com/open-mpi/ompi/pull/7523) · [pytorch/pytorch#129501](https://github.com/pytorch/pytorch/pull/129501)
