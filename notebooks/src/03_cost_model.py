# %% [markdown] id="03-fc4dda"
# # Predict what talking costs
#
# **Two numbers predict the time of any exchange.**
#
# ![Measured message times against size, log-log: flat at the latency on the left, rising with the bytes on the right, and a fitted line through both](../../figures/03_cost_model.png)
#
# *Where this goes: every point is a message between two real processes. The line has only two numbers in it, fitted to the points.*
#
# | | |
# |---|---|
# | **Do** | measure messages between real ranks, fit a line, predict a whole exchange with it, compare prediction, simulation and reality, ask what would happen on 128 ranks |
# | **Learn** | latency α and inverse bandwidth β; what a star and a tree cost, and what overlaps; lower bounds; algbw and busbw; when communication is the bottleneck, and what to send then |
# | **Need** | [02 collectives](02_collectives.ipynb): send, receive, all_reduce |
# | **Time** | about 65 minutes with the required exercise, 80 with the two optional ones as well |

# %% [markdown] id="03-42d4fe"
# ## One message, by hand
#
# In lesson 01 the curve of message times had two halves, one flat and one rising. However short a message is, some time passes before its first byte arrives: in the call, the operating system and the network. That is the **latency α**, in seconds. The rest grows with the size, because each byte keeps the link busy for a moment. That moment is **β**, in seconds per byte, the inverse of the link's **bandwidth** in bytes per second. A message of S bytes takes
#
# $$T(S) = \alpha+S\beta$$
#
# seconds: the model of Hockney (1994). `simulate` is built on it. Give `simulate` a link slow enough for pen and paper: α = 1 s, and 2 bytes per second, so that β = 0.5 s/byte. Eight bytes take 1 + 8 · 0.5 = 5 s.
#
# **Predict.** 16 bytes are twice as many. How many seconds do they take?

# %% id="03-76ac89"
import math
import time
from dataclasses import replace

import torch
import torch.distributed as dist

from course_lib import Hazard, Network, check, compute, draw, expect, run, simulate

# %% id="03-26ffa6"
slow = Network(latency=1, bandwidth=2)  # in seconds, and in bytes per second

def one_message(nbytes):
    message = torch.zeros(nbytes, dtype=torch.uint8)
    dist.send(message, dst=1) if dist.get_rank() == 0 else dist.recv(message, src=0)

assert simulate(one_message, 8, world_size=2, network=slow).seconds == 1 + 8 * 0.5 == 5
guess = None

# %% id="03-a8253f"
recorded = simulate(one_message, 16, world_size=2, network=slow).seconds
print(f"your guess: {guess}   simulated: {recorded:g} s")
assert recorded == 1 + 16 * 0.5 == 9

# %% [markdown] id="03-cb5144"
# Nine is less than twice five, because the second eight bytes need no latency of their own. One long message is cheaper than two short ones.
#
# ## Measured on this machine
#
# Now take two real processes on gloo, and play the ping-pong of lesson 01 once more. Why there and back? To time a message one way, we would have to read the sender's clock at the start and the receiver's at the end, and on two machines these clocks do not agree. A round trip needs only one clock.
#
# Three habits turn this into a measurement. A **barrier** comes first, so that a late partner does not count as message time. Then we **wait** until the data are there: rank 0's `recv` does that. And we play **many rounds**, of which the *fastest* counts: whatever else this machine does can make a message slower, never faster.

# %% id="03-04c904"
def ping_pong(message):
    partner = dist.get_rank() ^ 1  # 0 with 1, 2 with 3
    dist.barrier()
    start = time.perf_counter()
    for turn in (0, 1):
        if dist.get_rank() % 2 == turn:
            dist.send(message, dst=partner)
        else:
            dist.recv(message, src=partner)
    return (time.perf_counter() - start) / 2

# %% id="03-bcb87d"
sizes = [4**k for k in range(1, 12)]  # bytes: 4 to 4,194,304

def sweep(rounds=40):
    messages = [torch.zeros(nbytes // 4) for nbytes in sizes]
    best = [math.inf] * len(sizes)
    for _ in range(rounds):  # each with all sizes: a bad moment does not hit one size alone
        for i, message in enumerate(messages):
            best[i] = min(best[i], ping_pong(message))
    return best

measured = run(sweep, world_size=2).results[0]
for i in (0, 5, 10):
    print(f"{sizes[i]:>9,} bytes: {1e6 * measured[i]:.0f} µs")
assert measured[5] < 3 * measured[0] and measured[10] > 3 * measured[5]

# %% [markdown] id="03-cc100b"
# From the first line to the second, the size grows a thousandfold, and the time less than threefold, if at all. From there to the third, the size grows a thousandfold again, and most of the time goes into carrying the bytes.
#
# ## The fit, and what is left over
#
# Which α and β bring α + S·β nearest to the eleven points, by *least squares*? In plain seconds, the largest message would decide almost alone. So we divide each point's error by its time t and make the *relative* errors small: α/t + β·S/t should be 1 everywhere. That is one call of `lstsq`.
#
# The first picture also shows the two parts of the sum, from 16 kB on. For smaller messages, nearly all of the time is α. For the largest, nearly all of it is S·β. The second picture shows the **residuals**: by how much each measured time differs from the line. If three or more neighbouring points lie clearly on the same side of zero each time you measure, two numbers may not be enough: perhaps a buffer is full, a cache too small, or the library switches to another way of sending. For planning, a model is good if it is right to within a few tens of percent while the size grows a millionfold.

# %% id="03-1fc486"
S, t = torch.tensor([sizes, measured], dtype=torch.float64)
rows = torch.stack([1 / t, S / t], dim=1)
fit = torch.linalg.lstsq(rows, torch.ones_like(t).unsqueeze(1)).solution
alpha, beta = fit.flatten().tolist()
print(f"α: {1e6 * alpha:.0f} µs   1/β: {1 / beta / 1e9:.2f} GB/s   (1 GB is 1e9 bytes)")
assert alpha > 0 and beta > 0

large = sizes[6:]  # where the two parts differ from their sum
draw.lines(
    {"measured": (sizes, 1e6 * t), "α + S·β": (sizes, 1e6 * (alpha + S * beta)),
     "α alone": (large, [1e6 * alpha] * 5), "S·β alone": (large, 1e6 * (S * beta)[6:])},
    xlabel="size S, bytes", ylabel="one way, µs", loglog=True,
    formulas=["α + S·β", "α alone", "S·β alone"],
    caption="A short message takes about α, a long one about S·β, and the sum of the two "
    "follows the points from end to end.",
)

# %% id="03-2a3324"
residuals = 100 * (t / (alpha + S * beta) - 1)
draw.lines(
    {"measured against α + S·β": (S.log2(), residuals), "the line": (S.log2(), [0] * 11)},
    xlabel="log₂ of the size in bytes", ylabel="residual, %", formulas=["the line"],
    caption="What the two numbers leave unexplained: above 0, a message took longer than they say.",
)

# %% [markdown] id="03-a7fb43"
# ## From a message to an exchange: the star
#
# In one process, the problem is to add up four tensors: [1, 1] + [2, 2] + [3, 3] + [4, 4] = [10, 10]. That is the *reference*, and it costs no message. With one tensor on each of four ranks, the naive way is a **star**: all other ranks send their tensors to rank 0, which adds them up and sends the sum back to each of them. The result is that of an all_reduce.
#
# Two rules say how long it takes:
#
# 1. **A message sets off when both sides have called**, as in lesson 01. So that no message has to wait, rank 0 calls all its `irecv`s before it waits for the first. Later it calls all its `isend`s.
# 2. **Each rank has one link out and one link in.** Messages that need the same link **queue up**: it carries one byte at a time. Their latencies **overlap**, because waiting for a first byte keeps no link busy.
#
# **Predict.** There are four ranks with 8 bytes each, on the slow link from above. Follow the last message on its way to rank 0, and then the last one on the way back. After how many seconds does every rank have the sum?

# %% id="03-d18c5b"
def star(tensor, at_once=True):
    if dist.get_rank() > 0:
        dist.send(tensor, dst=0)
        dist.recv(tensor, src=0)
        return
    inboxes = {peer: torch.empty_like(tensor) for peer in range(1, dist.get_world_size())}
    if at_once:
        coming = {peer: dist.irecv(inbox, src=peer) for peer, inbox in inboxes.items()}
    for peer, inbox in inboxes.items():
        if at_once:
            coming[peer].wait()
        else:
            dist.recv(inbox, src=peer)
        tensor += inbox
    for work in [dist.isend(tensor, dst=peer) for peer in inboxes]:
        work.wait()

def add_up(at_once=True):
    mine = torch.full((2,), dist.get_rank() + 1.0)  # float32: 8 bytes
    star(mine, at_once)
    return mine.tolist()

guess = None

# %% id="03-7f73a7"
by_hand = simulate(add_up, world_size=4, network=slow)
print(f"your guess: {guess}   simulated: {by_hand.seconds:g} s")
assert by_hand.results == [[10, 10]] * 4 and by_hand.seconds == (1 + 3 * 4) + (1 + 3 * 4) == 26
draw.timeline(by_hand, caption="All three messages leave at once. Rank 0's link takes one after "
              "another, and they arrive after 5, 9 and 13 s. The others' bytes wait their turn. "
              "Hatched: a recv waits until rank 0 calls isend.")

# %% id="03-9be417"
in_turn = simulate(add_up, False, world_size=4, network=slow)  # each recv after the one before
assert in_turn.results == by_hand.results and in_turn.seconds == 3 * (1 + 4) + (1 + 3 * 4) == 28
draw.timeline(in_turn, caption="One recv after another: 28 s. Hatched: a call waits for its "
              "partner, and no byte moves before both have called.")

# %% id="03-b40c1e"
link, word = Network(latency=5e-6, bandwidth=25e9, collectives="messages"), torch.zeros(2)
there_and_back = simulate(star, word, world_size=1024, network=link).seconds
tree_out = simulate(dist.broadcast, word, 0, world_size=1024, network=link).seconds
took = [1e6 * seconds for seconds in (there_and_back / 2, tree_out, 1023 * link.seconds(8))]
print("8 bytes to 1,023 ranks: star {:.1f}, tree {:.0f}, one-port star {:,.0f} µs".format(*took))
assert [round(us, 1) for us in took] == [5.3, 50.0, 5115.3]

# %% [markdown] id="03-e66413"
# In the second picture, rank 0 calls its recvs *one after another*. Ranks 2 and 3 have called send, but by the first rule their messages set off only when rank 0 calls the matching recv. So their latencies no longer overlap, and the way in takes 15 s instead of 13.
#
# > **What overlaps: our model and the one-port model.** In our model a rank can begin any number of messages, and all of them together pay one α. In the cell above, 8 bytes go from one rank to 1,023 others. A star takes 5.3 µs (half of the round trip). A *tree*, which `collectives="messages"` asks for, takes ten rounds, 50 µs: in each, every rank that has the bytes sends them to one more. Many textbooks use the *one-port* model: a rank has one message under way in each direction. There the star pays 1,023 latencies, more than 5 ms, and the tree is a hundred times as fast. Real networks lie between the two, because starting a message costs the sender time. So before you compare two formulas, ask which model they are from.
#
# ## Your turn: star_seconds
#
# **Required · 03.1 · difficulty ●○○ · about 10 minutes**
#
# Back to the first picture, where the root calls everything at once. Turn its 26 seconds into a formula for any number of ranks, any size and any link.
#
# **Goal.** A function of four numbers that needs no loop and no communication. `nbytes` is the size of one rank's tensor, S, in bytes.
#
# From this lesson on, pass both levels, *core* and *sturdy*. Here, sturdy means a single rank, an empty tensor, and a link without latency or with unlimited bandwidth. What does a star cost when rank 0 is alone?
#
# <details>
# <summary>Hint: in and out, latency and bytes</summary>
#
# How many messages come into rank 0? Which part of their time do they spend side by side, and which part one after another? The way out takes as long as the way in. Try it on the 26 seconds above.
#
# </details>

# %% exercise="star_seconds" role="answer" points=10 required=true difficulty=1
def star_seconds(n: int, nbytes: float, alpha: float, beta: float) -> float:
    """Seconds of a star: every rank sends a tensor to a root, which sends the sum back to each.

    The root calls all its recvs at once, and later all its sends. Messages to the root queue at
    its link, and so do messages from it; their latencies overlap. Adding costs nothing.

    Args:
        n: the number of ranks, the root included, 1 or more.
        nbytes: the size of one rank's tensor in bytes, 0 or more.
        alpha: latency in seconds.
        beta: seconds per byte on a link, the inverse of its bandwidth.

    Returns:
        Seconds, unrounded, until every rank has the sum; 0 for one rank, which has it already.

    star_seconds(4, 8, 1.0, 0.5) is 26.0.
    """
    ### BEGIN SOLUTION
    if n == 1:
        return 0.0
    one_way = alpha + (n - 1) * nbytes * beta
    return 2 * one_way
    ### END SOLUTION

# %% exercise="star_seconds" role="try"
for n in (1, 2, 4, 8):
    simulated = simulate(add_up, world_size=n, network=slow).seconds
    print(f"n = {n}: {star_seconds(n, 8, 1.0, 0.5):g} s by your formula, {simulated:g} s simulated")

# %% exercise="star_seconds" role="check"
check(star_seconds)

# %% [markdown] id="03-7187ed"
# ## Model and reality
#
# How long does a star take with 1 MiB per rank, on the link that we have measured? The cell times 2 to 5 real processes, and simulates the same function. `simulate` replaces the clock: in it, `time.perf_counter` shows the model's time.
#
# Real processes are often slower than the model, and sometimes faster. The model gives each rank links of its own, and computing costs nothing: two pairs of ranks that play ping-pong do not slow each other down, as the cell asserts. In reality the "links" are copies in memory. The ranks share the cores that make them. α and β were measured with a single pair and know nothing of that.

# %% id="03-2ba294"
def timed_star(nbytes, rounds):
    best = math.inf
    for _ in range(rounds):
        tensor = torch.ones(nbytes // 4)
        dist.barrier()
        start = time.perf_counter()
        star(tensor)
        best = min(best, time.perf_counter() - start)
    return best

here, ranks, real, modelled = Network(alpha, 1 / beta), [2, 3, 4, 5], [], []
for n in ranks:
    real.append(1e3 * max(run(timed_star, 1 << 20, 20, world_size=n).results))
    in_model = simulate(timed_star, 1 << 20, 1, world_size=n, network=here).results
    modelled.append(1e3 * max(in_model))
    print(f"{n} ranks: {modelled[-1]:.1f} ms in the model, {real[-1]:.1f} ms measured")
one, two = (simulate(ping_pong, torch.ones(1 << 18), world_size=n, network=here).results[0]
            for n in (2, 4))
assert math.isclose(one, two, rel_tol=1e-9)  # two modelled pairs do not slow each other down
draw.lines({"real processes": (ranks, real), "simulated": (ranks, modelled)},
           xlabel="ranks", ylabel="ms", formulas=["simulated"],
           caption="A star of 1 MiB per rank. Simulated ranks have links of their own; real "
           "processes share cores and memory.")

# %% [markdown] id="03-d22d05"
# So times measured where ranks share one machine say little about an algorithm on a network. What holds everywhere can be counted: bytes, messages, steps.
#
# ## Better than a star, and how good it can get
#
# The star's cost grows with n because one link carries everything. In a **binomial tree**, half of the ranks send their tensor to a partner, which adds it to its own. Then half of the partners send their sums to the other half, and so on. After ⌈log₂ n⌉ rounds rank 0 has the sum, and the same tree in reverse hands it out: $2\lceil\log_2n\rceil(\alpha+S\beta)$ seconds.
#
# How good can it get? There are two lower bounds for algorithms made of sends and receives, the second with a condition:
#
# * **Bandwidth.** Adding up n tensors takes at least n − 1 transfers of S bytes, and n − 1 more until every rank has the sum. That makes 2(n − 1)·S bytes. At best n links share them evenly: $\frac{2(n-1)}{n}S\beta$ (Patarasuk and Yuan, 2009; Chan and others, 2007).
# * **Latency.** In the one-port model, the number of ranks that a tensor has reached at most doubles each round. So n ranks need at least $\lceil\log_2n\rceil\,\alpha$. Our model has no such bound.
#
# The cell simulates S = 262,144 bytes on 100 Gb/s Ethernet. With `collectives="messages"`, `simulate` sends `reduce` and `broadcast` along binomial trees, message by message. Without it, `simulate` sends no messages for a collective: it computes the time of several textbook algorithms (Thakur, Rabenseifner and Gropp, 2005) and takes the shortest. The curve `best_formula` shows this time for an all_reduce.

# %% id="03-d496e2"
ethernet = Network.ethernet_100g()  # α = 5 µs, 12.5 GB/s
in_messages, tensor = replace(ethernet, collectives="messages"), torch.ones(262_144 // 4)

def tree(tensor):
    dist.reduce(tensor, dst=0)
    dist.broadcast(tensor, src=0)

def best_formula(tensor):
    dist.all_reduce(tensor)

ranks, took = [2, 4, 8, 16, 32, 64, 128], {}
for way, link in ((star, ethernet), (tree, in_messages), (best_formula, ethernet)):
    times = [simulate(way, tensor, world_size=n, network=link).seconds for n in ranks]
    took[way.__name__] = [1e6 * seconds for seconds in times]
took["bandwidth bound"] = [1e6 * 2 * (n - 1) / n * 262_144 / ethernet.bandwidth for n in ranks]
at_128 = {name: times[-1] for name, times in took.items()}
assert round(at_128["star"] / at_128["tree"], 1) == 14.7
assert round(at_128["best_formula"] / at_128["bandwidth bound"], 1) == 2.7
assert round(at_128["best_formula"] - at_128["bandwidth bound"], 6) == 14 * 5  # 14 α, in µs
draw.lines({name: (ranks, times) for name, times in took.items()}, xlabel="ranks", ylabel="µs",
           loglog=True, formulas=["bandwidth bound"], exact=True,
           caption="The star's time grows with the number of ranks, the tree's with its "
           "logarithm. The bandwidth bound levels off.")

# %% [markdown] id="03-9d7e26"
# On 128 ranks the star takes 14.7 times as long as the tree. The best formula takes 2.7 times the bandwidth bound. The difference is pure latency: 14 α = 2·log₂ 128·α, as the last assertion says. The bound itself levels off at 2·S·β: more ranks need not mean ever more bytes on a link. Lesson 04 shows how.
#
# ## Your turn: bus_bandwidth
#
# **Optional · 03.2 · difficulty ●○○ · about 10 minutes**
#
# How good is a measured all_reduce? NVIDIA's *nccl-tests*, the usual benchmark, prints two rates. **algbw** is S/t, the size of the tensor divided by the time. It falls with more ranks even if nothing goes wrong, because each link must carry more: S bytes for two ranks, nearly 2·S for many. **busbw** corrects for that: it is the number of bytes that each link must *at least* carry, divided by the time. An algorithm that reaches the bandwidth bound, on links without latency, has the bandwidth of a link as its busbw, for any n ≥ 2. Latency makes it smaller, and so does a worse algorithm. So compare busbw with a data sheet.
#
# **Goal.** busbw of an all_reduce in bytes per second. The bandwidth bound above is a time; without its factor β it is the number of bytes that each link must at least carry.
#
# <details>
# <summary>Hint: one rank, two ranks, very many</summary>
#
# For a single rank no byte has to move. For two ranks busbw and algbw are equal. For very many ranks busbw comes close to twice algbw.
#
# </details>

# %% exercise="bus_bandwidth" role="answer" points=5 required=false difficulty=1
def bus_bandwidth(n: int, nbytes: float, seconds: float) -> float:
    """The bus bandwidth of an all_reduce as nccl-tests defines it.

    Args:
        n: the number of ranks, 1 or more.
        nbytes: the size of the tensor that each rank reduces, in bytes, 0 or more.
        seconds: how long the all_reduce took, more than 0.

    Returns:
        Bytes per second, unrounded: the bytes that each rank's link must at least carry, over
        the time; 0 for one rank.

    bus_bandwidth(4, 8, 2.0) is 6.0.
    """
    ### BEGIN SOLUTION
    least = 2 * (n - 1) / n * nbytes
    return least / seconds
    ### END SOLUTION

# %% exercise="bus_bandwidth" role="try"
perfect, ranks = Network(latency=0, bandwidth=10e9), [2, 4, 8, 16, 32, 64]
times = {n: simulate(best_formula, tensor, world_size=n, network=perfect).seconds for n in ranks}
algbw = [tensor.nbytes / times[n] / 1e9 for n in ranks]
busbw = [bus_bandwidth(n, tensor.nbytes, times[n]) / 1e9 for n in ranks]
draw.lines({"algbw": (ranks, algbw), "busbw": (ranks, busbw)}, xlabel="ranks", ylabel="GB/s",
           logx=True, ymin=0, caption="Links of 10 GB/s: algbw falls; busbw should stay at 10.")

# %% exercise="bus_bandwidth" role="check"
check(bus_bandwidth)

# %% [markdown] id="03-779c7f"
# ## What if: networks that we do not have
#
# `Network` has presets for links that one can buy:
#
# | | α | 1/β | |
# |---|---|---|---|
# | `ethernet_10g()` | 25 µs | 1.25 GB/s | IEEE 802.3ae, TCP |
# | `ethernet_100g()` | 5 µs | 12.5 GB/s | IEEE 802.3ba, RoCE |
# | `infiniband_ndr()` | 2 µs | 50 GB/s | 400 Gb/s per port |
# | `pcie5()` | 3 µs | 63 GB/s | PCI Express 5.0 ×16 |
# | `nvlink4()` | 2 µs | 450 GB/s | inside a machine with H100 GPUs |
#
# The bandwidths are what the standards leave for data. The latencies are typical published figures and may be wrong by a factor of two. [course_sim/README.md](../../course_sim/README.md) names the sources, and says what was measured on such machines.
#
# Take ResNet-50, with 25,557,032 float32 parameters: a gradient of 102 MB. *Suppose* that a rank computes for 0.1 s in each step and then averages the gradient.
#
# **Predict.** On 128 ranks with 10 Gb/s Ethernet, what share of the step is computing? (To save memory, the cell takes a tensor and a bandwidth that are both a thousand times too small: S·β stays the same.)

# %% id="03-3e960a"
def step():
    compute(0.1)  # seconds of the virtual clock
    dist.all_reduce(torch.ones(25_557_032 // 1000))

ranks, useful = [1, 2, 8, 32, 128], {}
for name in ("infiniband_ndr", "ethernet_100g", "ethernet_10g"):
    link = getattr(Network, name)()
    link = replace(link, bandwidth=link.bandwidth / 1000)
    steps = [simulate(step, world_size=n, network=link).seconds for n in ranks]
    useful[name] = (ranks, [100 * 0.1 / seconds for seconds in steps])
    print(f"{name:<15}{useful[name][1][-1]:.0f}% of the step on 128 ranks is computing")
draw.lines(useful, xlabel="ranks", ylabel="computing, % of the step", logx=True, ymin=0,
           exact=True, caption="The same training step on three networks: from eight ranks on, "
           "the link decides, and the number of ranks hardly matters.")

# %% [markdown] id="03-5cdfc3"
# On 10 Gb/s Ethernet with eight ranks or more, more than half of the step is communication. Two things help. A larger batch per rank means more computing for the same 102 MB. And a rank can send while it computes, which DistributedDataParallel does in lesson 06.
#
# ## Your turn: half_bandwidth_bytes
#
# **Optional · 03.3 · difficulty ●○○ · about 5 minutes**
#
# Which of the two numbers should you worry about? That depends on the size of the message. At one size, latency and transfer take equally long. Well below that size, only fewer messages help; well above it, only fewer bytes do. At that size a link reaches half of its bandwidth, hence the name; Hockney calls it n½.
#
# **Goal.** That size in bytes. Try it on the presets: do faster links reach half of their bandwidth with smaller messages or with larger ones?
#
# <details>
# <summary>Hint: units</summary>
#
# α is in seconds, and β in seconds per byte. Which operation on the two gives bytes?
#
# </details>

# %% exercise="half_bandwidth_bytes" role="answer" points=5 required=false difficulty=1
def half_bandwidth_bytes(alpha: float, beta: float) -> float:
    """The size of a message whose latency and transfer take equally long.

    Args:
        alpha: latency in seconds, 0 or more.
        beta: seconds per byte, more than 0.

    Returns:
        Bytes, unrounded.

    half_bandwidth_bytes(3.0, 0.5) is 6.0.
    """
    ### BEGIN SOLUTION
    return alpha / beta
    ### END SOLUTION

# %% exercise="half_bandwidth_bytes" role="try"
for name in ("ethernet_10g", "ethernet_100g", "infiniband_ndr", "pcie5", "nvlink4"):
    link = getattr(Network, name)()
    print(f"{name:<15}{half_bandwidth_bytes(link.latency, 1 / link.bandwidth):>9,.0f} bytes")

# %% exercise="half_bandwidth_bytes" role="check"
check(half_bandwidth_bytes)

# %% [markdown] id="03-44477d"
# ## What to send: weights or activations?
#
# When communication is the bottleneck, ask *what* is sent. Take one linear layer with w inputs and w outputs in float32, and a batch of B rows. In **data parallelism** every rank has all weights and a part of the rows. In **model parallelism** it has a part of the model. Where each layer is divided, as here, this is called **tensor parallelism**: every rank computes some of the outputs, for all rows.
#
# | | data parallelism | tensor parallelism |
# |---|---|---|
# | forward | nothing | all_gather of the outputs: 4·B·w bytes |
# | backward | all_reduce of the weights' gradient: 4·w² bytes | all_reduce of the inputs' gradient: 4·B·w bytes |
#
# By the bounds above, an all_reduce of S bytes puts at least 2(n − 1)/n·S on a link. An all_gather puts half of that there, because nothing has to come back. The cell records the calls of four real ranks with w = 384, multiplies their bytes by these factors, and plots the result against B.
#
# **Predict.** With how many rows do the two ways cost the same?

# %% id="03-5d1f70"
guess = None

# %% id="03-b0eba3"
def data_parallel(batch, width):
    inputs = torch.ones(batch // dist.get_world_size(), width)
    outputs_grad = inputs @ torch.ones(width, width)  # as if the loss were |outputs|²/2
    dist.all_reduce(outputs_grad.T @ inputs)

def tensor_parallel(batch, width):
    mine = torch.ones(width // dist.get_world_size(), width)  # some of the layer's outputs
    outputs = torch.ones(batch, width) @ mine.T
    dist.all_gather([torch.empty_like(outputs) for _ in range(dist.get_world_size())], outputs)
    dist.all_reduce(outputs @ mine)

def link_bytes(way, batch):
    calls = run(way, batch, 384).trace.of(0)
    factors = {"all_reduce": 2, "all_gather": 1}  # both times (n − 1)/n = 3/4
    return sum(factors[call.op] * call.nbytes for call in calls) * 3 // 4

batches = [64, 128, 256, 512, 1024]
counted = {way.__name__: [link_bytes(way, b) for b in batches]
           for way in (data_parallel, tensor_parallel)}
print(f"your guess: {guess}   recorded: {batches[2]} rows")
assert counted["data_parallel"][2] == counted["tensor_parallel"][2] == 884_736  # at B = 256
draw.lines({name: (batches, [b / 1e6 for b in nbytes]) for name, nbytes in counted.items()},
           xlabel="rows in the batch, B", ylabel="MB per link", exact=True, ymin=0,
           caption="Data parallelism sends the same amount for any batch, tensor parallelism in "
           "proportion to it. For a layer of 384 × 384 they meet at B = 256.")

# %% [markdown] id="03-6da425"
# They cost the same where 2·4w² = (2 + 1)·4·B·w, that is, at **B = ⅔·w**. With few weights and many activations, as in convolutions, choose data parallelism; with many weights and few activations, as in wide linear layers, tensor parallelism (Krizhevsky, 2014, used both in one network).
#
# ## Break it
#
# Somebody times a message on the slow link and gets a wonderful bandwidth: `timed(wait=False)` forgets one call.
#
# **Predict.** What does rank 0's stopwatch show without that call, and what with it?

# %% id="03-a2f911"
def timed(wait):
    message = torch.zeros(8, dtype=torch.uint8)
    start = time.perf_counter()
    if dist.get_rank() == 1:
        dist.recv(message, src=0)
    else:
        work = dist.isend(message, dst=1)
        if wait:
            work.wait()
    print(f"8 bytes in {time.perf_counter() - start:g} s")

with expect(Hazard):
    simulate(lambda: timed(wait=False), world_size=2, network=slow)
waited = simulate(lambda: timed(wait=True), world_size=2, network=slow)
assert [event.completed for rank in (0, 1) for event in waited.trace.of(rank)] == [4, 5]

# %% [markdown] id="03-5c8b96"
# Without `wait`, rank 0's stopwatch shows 0 s: what was timed is only the call. With `wait` it shows 4 s, which is still too little. A send is over when its last byte has left. That byte travels for another second, the latency, until rank 1 has it after 5 s. In the simulator the stopwatches of both ranks start at the same time; on two machines only a round trip shows the whole time.
#
# On GPUs the missing wait is the usual mistake, and no Hazard tells you: with NCCL, even a plain `dist.all_reduce` returns before the data have moved. Call `torch.cuda.synchronize()` before you read the clock, or use CUDA events.
#
# ## In practice
#
# * **Measure α and β of your cluster** before you blame it. Between GPUs, nccl-tests goes through the sizes: `./build/all_reduce_perf -b 8 -e 128M -f 2 -g 8`. The first lines tell you the latency, the last ones the bandwidth.
# * **Know your links.** `nvidia-smi topo -m` shows how the GPUs of a machine are connected.
# * **When the model differs.** Libraries change protocol and algorithm with the size, so each pair α, β holds for a range of sizes.
#
# ## Roads not taken
#
# * **LogP** (Culler and others, 1993) also counts the time that the processor needs to start a message, and so lies between our model and the one-port model.
# * **Packet simulators** model switches and queues. They need a description of the whole network, and they are slow.
#
# ## What you can do now
#
# * ☑ measure messages fairly, fit α and β, and look at the residuals before trusting the fit;
# * ☑ predict what a star costs, and say what the model leaves out;
# * ☑ compare an algorithm with the lower bounds of latency and bandwidth;
# * ☑ read algbw and busbw, and say which one to compare with a data sheet;
# * ☑ ask what a training step would cost on another network, with many more ranks;
# * ☑ say whether communication is the bottleneck, and whether gradients or activations should travel.
#
# **Next**, [04 ring all-reduce](04_ring_all_reduce.ipynb): an algorithm that reaches the bandwidth bound, written by you. Previous: [02 collectives](02_collectives.ipynb).
#
# ## Sources
#
# * R. W. Hockney, *The communication challenge for MPP: Intel Paragon and Meiko CS-2*, Parallel Computing 20(3), 1994, [doi:10.1016/S0167-8191(06)80021-9](https://doi.org/10.1016/S0167-8191(06)80021-9)
# * R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of Collective Communication Operations in MPICH*, International Journal of High Performance Computing Applications 19(1), 2005, [doi:10.1177/1094342005051521](https://doi.org/10.1177/1094342005051521)
# * E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn, *Collective communication: theory, practice, and experience*, Concurrency and Computation: Practice and Experience 19(13), 2007, [doi:10.1002/cpe.1206](https://doi.org/10.1002/cpe.1206)
# * P. Patarasuk, X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, Journal of Parallel and Distributed Computing 69(2), 2009, [doi:10.1016/j.jpdc.2008.09.002](https://doi.org/10.1016/j.jpdc.2008.09.002)
# * NVIDIA, nccl-tests: [Performance reported by NCCL tests](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md) (algbw, busbw, the bound on all_reduce)
# * D. Culler and others, *LogP: towards a realistic model of parallel computation*, PPoPP 1993, [doi:10.1145/155332.155333](https://doi.org/10.1145/155332.155333)
# * A. Krizhevsky, *One weird trick for parallelizing convolutional neural networks*, 2014, [arXiv:1404.5997](https://arxiv.org/abs/1404.5997)
# * torchvision: [ResNet-50](https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.resnet50.html) (its number of parameters) · PyTorch: [Synchronous and asynchronous collective operations](https://docs.pytorch.org/docs/stable/distributed.html#synchronous-and-asynchronous-collective-operations) (what has happened when a call returns)
# * A packet simulator: [ns-3](https://www.nsnam.org/)
