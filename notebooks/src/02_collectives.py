# %% [markdown] id="02-951898"
# # Talk to everybody at once
#
# **Collectives are calls in which every rank takes part: what each one promises, and how to build it from send and receive.**
#
# ![Four ranks with four numbers each, as recorded: before, and after broadcast, gather, all_gather, all_reduce and reduce_scatter](../../figures/02_collectives.png)
#
# *Where this goes: a table is spread over four ranks, one row each. The picture shows who has what after each of five calls.*
#
# | | |
# |---|---|
# | **Do** | call seven collectives and look at who has what before and after; count the messages of their patterns; write one yourself from send and receive (four more are optional); break a contract in three ways |
# | **Learn** | the contract of each: who must call, what must agree, who has what afterwards, what stays untouched; reduce operators; what a pattern of messages costs |
# | **Need** | [01, Send and receive without ever standing still](01_point_to_point.ipynb): send, recv, isend, wait, deadlock, `simulate` |
# | **Time** | about 60 minutes with the required exercise, 120 with the four optional ones as well |

# %% [markdown] id="02-6f409e"
# ## The problem in one process
#
# Our table has four rows and four columns: row *r* is 1, 2, 3, 4 times 10ʳ. Each number tells you which row it comes from, and each sum tells you what went into it. 1111 has every row once, 1011 lacks row 2, and 1211 has row 2 twice.
#
# In one process the whole table is yours, and any question about it takes one line: a row, a column, the sum of each column. Check the first sum by hand: 1 + 10 + 100 + 1000. These four sums are our *reference*.
#
# Now spread the table over four ranks, one row per rank. Training does this with everything that is large: batches, gradients, parameters. The same questions now need messages. A few of them are asked so often that each has a name and a call of its own, a *collective*. You have met one already: `all_reduce` gave every rank the sum of the gradients.

# %% id="02-ab18a2"
import torch
import torch.distributed as dist

from course_lib import Deadlock, Mismatch, Network, check, draw, expect, run, simulate, span

def row():
    """This rank's row of the table."""
    return torch.tensor([1, 2, 3, 4]) * 10 ** dist.get_rank()

table = torch.stack([torch.tensor([1, 2, 3, 4]) * 10**rank for rank in range(4)])
reference = table.sum(0)
assert reference.tolist() == [1111, 2222, 3333, 4444]

# %% [markdown] id="02-be8089"
# ## With a root: one to all, all to one
#
# In four collectives one rank is special. It is called the *root*. The argument is named `src` if the root gives data, and `dst` if it takes them. A collective has a **contract** of four parts. *Who must call*: every rank of the group, even one that gets nothing. *What must agree*: shape, dtype, root and, in a reduce, the operator. *Who has what afterwards*, and *what stays untouched*. The last two differ from call to call:
#
# | call | before | afterwards | untouched |
# |---|---|---|---|
# | `broadcast(x, src)` | `x` on src | every rank's `x` equals src's, in place | src's `x` |
# | `scatter(piece, pieces, src)` | a list `pieces` on src, one piece for each rank | rank *r*'s `piece` is number *r* of the list | the list |
# | `gather(x, boxes, dst)` | `x` on every rank | dst's list `boxes` holds them all, in rank order | every `x` |
# | `reduce(x, dst)` | `x` on every rank | dst's `x` is the sum of all | nothing is promised |
#
# Only the root has the lists; the other ranks pass `None`. To keep the picture small, gather takes only the first number of each row.
#
# **Predict.** In the reduce, rank 1 is dst, and rank 0 passes in 1, 2, 3, 4. What is in rank 0's tensor afterwards? Write a list in place of `None`.

# %% id="02-6e3879"
def with_a_root(src=2, dst=1):
    rank, mine = dist.get_rank(), row()
    copy, piece, total = mine.clone(), torch.empty_like(mine[:1]), mine.clone()
    dist.broadcast(copy, src=src)
    dist.scatter(piece, list(mine.split(1)) if rank == src else None, src=src)
    boxes = [torch.empty_like(mine[:1]) for _ in range(4)] if rank == dst else None
    dist.gather(mine[:1], boxes, dst=dst)
    dist.reduce(total, dst=dst)
    return {"before": mine, "broadcast, src=2": copy, "scatter, src=2": piece,
            "gather, dst=1": boxes, "reduce, dst=1": total}

guess = None

# %% id="02-a90c14"
rooted = run(with_a_root)
after = [result["reduce, dst=1"].tolist() for result in rooted.results]
print(f"your guess: {guess}   recorded: {after[0]}")
assert after[1] == reference.tolist() and after[0] == [1111, 2222, 3, 4]
draw.values(rooted, caption="A cell has the colour of the rank that it comes from; new numbers are "
            "grey. After reduce, rank 1 has the sums, and the others hold intermediate results.")

# %% [markdown] id="02-ccda35"
# Did you guess 1, 2, 3, 4? Rank 0 has 1111, 2222, 3, 4: gloo used its tensor for intermediate results. The documentation promises the result on dst and says nothing about the other ranks. Another backend, or a longer tensor, may leave something else there. **Do not rely on what a contract does not promise.** A rank that needs its row later passes in a `clone`, as `with_a_root` does.
#
# ## What is inside: a pattern of messages
#
# Every collective is built on a *pattern*: who sends to whom, in which order. Here are three for a broadcast. In a **star**, the root sends to every other rank itself. In a **chain**, each rank sends to the next one. In a **tree**, every rank that already has the data sends them to one more, round after round.
#
# `follow` plays any pattern, given as a list of (from, to, how many thousand numbers). It only moves bytes: what a collective does with them on arrival is left out. All ranks read the list from top to bottom, so no rank waits for ever.
#
# The first cell simulates the three broadcasts on a slow network. There, a tensor of S = 4,000 bytes takes 0.1 s of latency and 1 s of transfer. In the picture below that cell, press Play, or use the arrow keys. The second cell plays the three on real ranks, and adds two ways to gather and one to reduce. For each pattern it prints how many bytes travel in all, and how many the busiest rank sends. Its picture is a *traffic matrix* of the last three patterns: rows send, columns receive.

# %% id="02-4ca62c"
def follow(plan):
    rank, numbers = dist.get_rank(), torch.zeros(3000)
    for src, dst, thousands in plan:
        part = numbers[: int(1000 * thousands)]
        if rank == src:
            dist.send(part, dst)
        elif rank == dst:
            dist.recv(part, src)

def broadcasts():
    for name in ("star", "chain", "tree"):
        with span(name):
            follow(plans[f"broadcast, {name}"])
        dist.barrier()

plans = {"broadcast, star": [(2, 0, 1), (2, 1, 1), (2, 3, 1)],
         "broadcast, chain": [(2, 3, 1), (3, 0, 1), (0, 1, 1)],
         "broadcast, tree": [(2, 0, 1), (2, 3, 1), (0, 1, 1)]}
link = Network(latency=0.1, bandwidth=4000)
seconds = [simulate(follow, plan, world_size=4, network=link).seconds for plan in plans.values()]
assert [round(t, 6) for t in seconds] == [3.1, 3.3, 2.2] and round(link.seconds(4000), 6) == 1.1
draw.steps(simulate(broadcasts, world_size=4, network=link),
           caption="Star, chain and tree, each with three messages. Only in the tree do two ranks "
           "send at the same time. A barrier follows each pattern.")

# %% id="02-71e5fd"
plans |= {"gather, star": [(0, 1, 1), (2, 1, 1), (3, 1, 1)],
          "gather, chain": [(2, 3, 1), (3, 0, 2), (0, 1, 3)],
          "reduce, chain": [(2, 3, 1), (3, 0, 1), (0, 1, 1)]}

def busiest(job):
    return max(job.trace.bytes_sent(rank) for rank in range(4))

n, S = 4, 4 * 1000  # ranks; bytes of a float32 tensor of 1000 numbers
jobs = [run(follow, plan) for plan in plans.values()]
moved = [sum(message.nbytes for message in job.trace.messages) for job in jobs]
for name, job, nbytes in zip(plans, jobs, moved, strict=True):
    print(f"{name:<17}{nbytes:>7,} bytes in all, {busiest(job):>6,} from the busiest rank")
assert moved == [12_000, 12_000, 12_000, 12_000, 24_000, 12_000] and moved[0] == (n - 1) * S
draw.traffic(*jobs[3:], titles=list(plans)[3:], caption="Three ways to bring 4 kB from every rank "
             "to rank 1. Messages grow only in the gathering chain: a sum stays 4 kB long.")

# %% [markdown] id="02-126de0"
# A broadcast needs at least n − 1 messages, since each of the other ranks must receive the tensor. That makes **(n − 1)·S bytes** in total, here 3 × 4,000 each time. What differs is who sends them and when.
#
# * **Star**: the root sends all 12,000 bytes. It takes 3.1 s, not 3.3: the root's next message leaves while the one before still travels, so only one latency counts.
# * **Chain**: no rank sends more than S bytes, but the last rank gets its copy after n − 1 messages, one after another: 3 · 1.1 = 3.3 s.
# * **Tree**: two rounds here, ⌈log₂ n⌉ in general: 2 · 1.1 = 2.2 s.
#
# Whether the star or the tree is faster depends on n, S and the network. Lessons 03 and 09 compare them.
#
# To *gather* in a chain, each rank passes on everything that it has received, plus its own tensor. The messages grow, and come to 24,000 bytes in total. *Reducing* in a chain takes only 12,000, because a sum of three tensors is as long as one.
#
# ## Your turn: my_broadcast
#
# **Required · 02.1 · difficulty ●○○ · about 15 minutes**
#
# **Goal.** Afterwards, every rank's `tensor` holds what src's held. Build it from send and receive, in whichever pattern you like. Bytes and time are not graded here. Any rank may be src.
#
# In all five exercises, *core* plays contiguous float32 tensors on 2 to 5 ranks. *Sturdy* adds a single rank, eight and more ranks, empty tensors, strides and other dtypes. (*Strides* here means a tensor that is not contiguous in memory, such as `x.T`. Gloo's send and recv refuse it. So send `x.contiguous()`. To receive, use a new contiguous tensor as an inbox, and then write its numbers into the caller's tensor with `copy_`. An inbox from `torch.empty_like(x)` keeps the layout of a transposed `x`, unless you add `memory_format=torch.contiguous_format`.)
#
# <details>
# <summary>Hint: two roles, and a trap</summary>
#
# A rank is either src or it is not. For each of the two, write down which calls it makes, and to whom. Then count: every send needs one recv. The trap is in the words *in place*: the caller looks into the very tensor object that it passed in. What does `tensor = inbox` change for the caller?
#
# </details>

# %% exercise="my_broadcast" role="answer" points=10 required=true difficulty=1
def my_broadcast(tensor: torch.Tensor, src: int) -> None:
    """Copy src's tensor into every rank's, in place, by send and receive.

    Every rank calls it, with a tensor of the same shape and dtype and with the same src.

    Args:
        tensor: on src, the values to send, which stay as they are. On the other ranks, it is
            overwritten and stays the same object.
        src: the rank that has the values.
    """
    ### BEGIN SOLUTION
    if dist.get_rank() == src:
        for other in range(dist.get_world_size()):
            if other != src:
                dist.send(tensor.contiguous(), dst=other)
    else:
        inbox = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        dist.recv(inbox, src=src)
        tensor.copy_(inbox)
    ### END SOLUTION

# %% exercise="my_broadcast" role="try"
def try_broadcast(mine):
    my_broadcast(mine, src=2)
    return mine.tolist()

job = run(lambda: try_broadcast(row()))
print(*job.results)
draw.traffic(job, caption="The pattern of your own broadcast: who sent how many bytes to whom.")

# %% exercise="my_broadcast" role="check"
check(my_broadcast)

# %% [markdown] id="02-b1a84c"
# ## Your turn: my_gather
#
# **Optional · 02.2 · difficulty ●○○ · about 10 minutes**
#
# This is the way back: dst collects. In practice, it is how rank 0 gets every rank's predictions.
#
# **Goal.** dst returns a list of n new tensors, in which entry *r* is rank *r*'s; the other ranks return `None`. *New* means that the list shares memory with nothing, and that includes dst's own entry: if the caller changes an entry, `tensor` must not change.
#
# In every pattern, dst has to receive (n − 1)·S bytes. That is why large things are seldom gathered.
#
# <details>
# <summary>Hint: how many inboxes?</summary>
#
# `[box] * 4` is a list with four places and one tensor. And a recv without `src` takes whatever comes first; what tells you where it belongs?
#
# </details>

# %% exercise="my_gather" role="answer" points=10 required=false difficulty=1
def my_gather(tensor: torch.Tensor, dst: int) -> list[torch.Tensor] | None:
    """Collect every rank's tensor on dst, by send and receive.

    Every rank calls it, with a tensor of the same shape and dtype and with the same dst.

    Args:
        tensor: this rank's part; it must not change.
        dst: the rank that collects.

    Returns:
        On dst, a list of new tensors in rank order, with a copy of its own part; None elsewhere.
    """
    ### BEGIN SOLUTION
    if dist.get_rank() != dst:
        dist.send(tensor.contiguous(), dst=dst)
        return None
    everybody = []
    for other in range(dist.get_world_size()):
        entry = tensor.clone(memory_format=torch.contiguous_format)
        if other != dst:
            dist.recv(entry, src=other)
        everybody.append(entry)
    return everybody
    ### END SOLUTION

# %% exercise="my_gather" role="try"
collected = run(lambda: {"before": row()[:1], "my_gather, dst=1": my_gather(row()[:1], dst=1)})
draw.values(collected, caption="Rank 1 alone should have one number of each colour, in rank order.")

# %% exercise="my_gather" role="check"
check(my_gather)

# %% [markdown] id="02-f4ce12"
# ## Which operation?
#
# A reduction combines numbers, and the *reduce operator* says how. The default is `dist.ReduceOp.SUM`. The backend chooses the order and the grouping, so the result must not depend on either. A sum of floats does, in the last digits: (a + b) + c may be rounded differently from a + (b + c). So backends may differ. AVG divides the sum by the number of ranks; gloo refuses it for integers. Integers have bitwise operators, but not on NCCL: `BAND`, `BOR`, `BXOR`.

# %% id="02-6119fd"
def reduced(name):
    mine = row().double()
    dist.all_reduce(mine, op=getattr(dist.ReduceOp, name))
    return mine.tolist()

for name in ("SUM", "PRODUCT", "MAX", "MIN", "AVG"):
    print(f"{name:<8}", *(f"{number:>14,.2f}" for number in run(reduced, name).results[0]))

# %% [markdown] id="02-640ee4"
# ## Your turn: my_reduce
#
# **Optional · 02.3 · difficulty ●●○ · about 15 minutes**
#
# **Goal.** Afterwards, dst's `tensor` holds the reduction of all tensors by `op`: `"sum"`, `"prod"`, `"max"` or `"min"`. Your function promises more than torch's does: **every other rank's tensor is as it was.**
#
# A star works. So do a chain and a tree, provided that the ranks on the way put their results into a new tensor and not into the caller's `tensor`.
#
# <details>
# <summary>Hint: which value to start from?</summary>
#
# A sum can start from 0 and a product from 1. For a maximum, neither is right: all numbers may be negative. But every reduction can start from one of the tensors, for example dst's own. Then combine it with each of the others once.
#
# </details>

# %% exercise="my_reduce" role="answer" points=10 required=false difficulty=2
def my_reduce(tensor: torch.Tensor, dst: int, op: str) -> None:
    """Reduce every rank's tensor into dst's, in place, by send and receive.

    Every rank calls it, with a tensor of the same shape and dtype, the same dst and the same op.

    Args:
        tensor: this rank's part. On dst the result overwrites it; elsewhere it must not change.
        dst: the rank that gets the result.
        op: "sum", "prod", "max" or "min", element by element.
    """
    ### BEGIN SOLUTION
    combine = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}[op]
    if dist.get_rank() != dst:
        dist.send(tensor.contiguous(), dst=dst)
        return
    inbox = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    for other in range(dist.get_world_size()):
        if other != dst:
            dist.recv(inbox, src=other)
            tensor.copy_(combine(tensor, inbox))
    ### END SOLUTION

# %% exercise="my_reduce" role="try"
def try_reduce():
    mine = row()
    my_reduce(mine, dst=1, op="max")
    return {"before": row(), "after my_reduce, dst=1, max": mine}

draw.values(run(try_reduce), caption="Only rank 1's row may change. It takes rank 3's colour, "
            "because every largest number is rank 3's.")

# %% exercise="my_reduce" role="check"
check(my_reduce)

# %% [markdown] id="02-905904"
# ## Without a root: everybody gets something
#
# The other three of the seven have no root. Training uses these most.
#
# | call | before | afterwards | untouched |
# |---|---|---|---|
# | `all_gather_single(out, x)` | `x` on every rank | every `out` holds all `x`, one after another | every `x` |
# | `all_reduce(x)` | `x` on every rank | the sum in every `x`, in place | nothing: `x` is overwritten |
# | `reduce_scatter_single(out, x)` | `x` on every rank, n blocks long | rank *r*'s `out` is block *r* of the sum | every `x` |
#
# The ending `_single` means one long tensor in place of a list; `all_gather` and `reduce_scatter` take lists. The `_single` names are recent: up to PyTorch 2.11 they were `all_gather_into_tensor` and `reduce_scatter_tensor`, and the old names still work.
#
# In `reduce_scatter`, each rank's tensor is cut into n *blocks*. Block *r* of the sum ends up on rank *r* and nowhere else, so each rank is the root of a small reduce. A reduce_scatter is half of an all_reduce: followed by an all_gather, it gives every rank the whole sum. An assertion in the next cell checks this. When a model is so large that no rank holds all of it, a rank needs only its own block of the gradient, and the reduce_scatter alone is enough.

# %% id="02-cf1403"
def without_a_root():
    mine = row()
    everything, everywhere, block = mine.new_empty(4), mine.clone(), mine.new_empty(1)
    dist.all_gather_single(everything, mine[:1])
    dist.all_reduce(everywhere)
    dist.reduce_scatter_single(block, mine)
    again = mine.new_empty(4)
    dist.all_gather_single(again, block)
    assert again.equal(everywhere)
    return {"before": mine, "all_gather": everything, "all_reduce": everywhere,
            "reduce_scatter": block}

rootless = run(without_a_root)
assert [result["reduce_scatter"].item() for result in rootless.results] == reference.tolist()
draw.values(rootless, caption="all_gather brings one number from each rank to every rank. "
            "all_reduce brings every sum to every rank, reduce_scatter one sum to each.")

# %% [markdown] id="02-2ccc4c"
# ## Your turn: my_all_gather
#
# **Optional · 02.4 · difficulty ●●○ · about 15 minutes**
#
# **Goal.** Every rank returns a list of n new tensors, in which entry *r* is rank *r*'s. Now every rank has something to send and something to receive, and you know from lesson 01 what happens when all of them send first.
#
# <details>
# <summary>Hint: three ways out</summary>
#
# First way: let the ranks speak one after another. Second: begin all messages before you wait for any. Third: pass tensors around a ring, as in `pass_right`, n − 1 times, and each time pass on the tensor that arrived last. Whose tensor arrives in step *k*?
#
# </details>

# %% exercise="my_all_gather" role="answer" points=10 required=false difficulty=2
def my_all_gather(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Collect every rank's tensor on every rank, by send and receive.

    Every rank calls it, with a tensor of the same shape and dtype.

    Args:
        tensor: this rank's part; it must not change.

    Returns:
        A list of new tensors in rank order, the same on every rank, with a copy of its own part.
    """
    ### BEGIN SOLUTION
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    parts = [tensor.clone(memory_format=torch.contiguous_format) for _ in range(size)]
    for step in range(size - 1):
        going = dist.isend(parts[(rank - step) % size], dst=right)
        dist.recv(parts[(rank - step - 1) % size], src=left)
        going.wait()
    return parts
    ### END SOLUTION

# %% exercise="my_all_gather" role="try"
job = run(lambda: [part.tolist() for part in my_all_gather(row())])
print(*job.results, sep="\n")
draw.traffic(job, caption="Whatever the pattern, every column adds up to at least 96 bytes: "
             "three rows of the table have to arrive at each rank.")

# %% exercise="my_all_gather" role="check"
check(my_all_gather)

# %% [markdown] id="02-eea1cf"
# ## What reduce_scatter has to cost
#
# Here are three patterns for it, on tensors of S = 4,000 bytes, in four blocks of 1,000 bytes:
#
# * **Through a root**: every rank sends its whole tensor to rank 0, which adds them up and hands out the blocks.
# * **Everything to everybody**: every rank sends its whole tensor to each of the others, adds up what it receives and keeps one block of the sum.
# * **Each block to its owner**: a rank sends its block 1 to rank 1, its block 2 to rank 2, and so on.
#
# **Predict.** In the third pattern, how many bytes does one rank send? Put a number in place of `None`.

# %% id="02-d5c7b0"
guess = None

# %% id="02-a74fea"
others = [(src, dst) for src in range(n) for dst in range(n) if src != dst]
to_root = [(r, 0, 1) for r in range(1, n)] + [(0, r, 1 / n) for r in range(1, n)]
naive = run(follow, to_root)
wasteful = run(follow, [(src, dst, 1) for src, dst in others])
blocks = run(follow, [(src, dst, 1 / n) for src, dst in others])

print(f"your guess: {guess}   recorded: {busiest(blocks):,} bytes")
assert busiest(naive) == S and busiest(wasteful) == (n - 1) * S == 12_000
assert busiest(blocks) == (n - 1) * S // n == 3_000
draw.traffic(naive, wasteful, blocks,
             titles=["through a root", "everything to everybody", "each block to its owner"],
             caption="Three ways to a reduce_scatter of 4 kB. Left: 12 kB go into rank 0. Middle: "
             "every rank sends 12 kB. Right: every rank sends 3 kB.")

# %% [markdown] id="02-06b9cb"
# Each block to its owner costs **(n − 1)/n · S bytes per rank**, never more than the tensor itself, on any number of ranks. No pattern can do with fewer bytes in total: each block of the sum needs numbers from n − 1 ranks that do not own it, and each of them has to send S/n bytes at least (compare Patarasuk and Yuan, 2009). Through the root, a rank sends at most S bytes, only a third more. But look at the first column: 12,000 bytes queue at rank 0, while the other ranks wait.
#
# The matrix in the middle is also that of an all_gather. In an all_gather no byte is wasted: every rank needs all other tensors, (n − 1)·S bytes.
#
# `draw.traffic` sees messages, not what a backend does inside `all_reduce`. For a collective, the record holds only the call, the size of its tensors and the times.
#
# ## Your turn: my_reduce_scatter
#
# **Optional · 02.5 · difficulty ●●● · about 20 minutes**
#
# **Goal.** The first dimension of `tensor` is a multiple of n. Rank *r* returns block *r* of the sum, as a new tensor. The argument stays as it is.
#
# **Budget.** No rank sends more than (n − 1)/n of its tensor's bytes, and none receives more. The budget is a level of its own: right sums with too many bytes still earn *core*. Get the sums right first, then the bytes.
#
# <details>
# <summary>Hint: n small reduces at once</summary>
#
# Rank *r* is the root for block *r*. Which ranks does it have to hear from, and what does it owe to each of them? The blocks of a tensor are views of it. If you add into a block, you change the caller's tensor, and you may not write to a block that is under way.
#
# </details>

# %% exercise="my_reduce_scatter" role="answer" points=10 required=false difficulty=3
def my_reduce_scatter(tensor: torch.Tensor) -> torch.Tensor:
    """Sum every rank's tensor and return this rank's block of the sum, by send and receive.

    Every rank calls it, with a tensor of the same shape and dtype.

    Args:
        tensor: its first dimension is a multiple of the number of ranks, n. It must not change.

    Returns:
        This rank's block of the sum: block r on rank r, if the sum is cut into n equal blocks
        along its first dimension.
    """
    ### BEGIN SOLUTION
    rank, size = dist.get_rank(), dist.get_world_size()
    owed = [part.contiguous() for part in tensor.tensor_split(size)]
    total = owed[rank].clone()
    inbox = torch.empty_like(total)
    going = [dist.isend(owed[other], dst=other) for other in range(size) if other != rank]
    for other in range(size):
        if other != rank:
            dist.recv(inbox, src=other)
            total += inbox
    for work in going:
        work.wait()
    return total
    ### END SOLUTION

# %% exercise="my_reduce_scatter" role="try"
job = run(lambda: my_reduce_scatter(row()).tolist())
print(*job.results)
draw.traffic(job, caption="A rank's tensor has 32 bytes, so the budget is 24: no row of this "
             "matrix should add up to more.")

# %% exercise="my_reduce_scatter" role="check"
check(my_reduce_scatter)

# %% [markdown] id="02-e5fc2a"
# ## Break it: who calls, and what agrees
#
# Two parts of the contract are often broken. First, *who must call*. The result of a reduce is for dst alone, and only dst prints the mean loss. So why not call it on that rank alone?
#
# Second, *what must agree*. In the second cell, rank 3 asks for the maximum where the others add up. After that, every rank names itself as the root of a broadcast.
#
# **Predict.** What does gloo do with the two operators when nobody compares the calls? `record=False` switches off the recorder that compares them, and the last line shows the result.

# %% id="02-4172c5"
def print_mean(loss):
    if dist.get_rank() == 0:
        dist.reduce(loss, dst=0)
        print("mean loss:", loss.item() / dist.get_world_size())

with expect(Deadlock):
    run(print_mean, torch.ones(1))

# %% id="02-482d84"
def two_operators():
    mine = row()
    op = dist.ReduceOp.MAX if dist.get_rank() == 3 else dist.ReduceOp.SUM
    dist.all_reduce(mine, op=op)
    return mine.tolist()

def four_roots():
    dist.broadcast(row(), src=dist.get_rank())

with expect(Mismatch):
    run(two_operators)
with expect(Mismatch):
    run(four_roots)
unseen = run(two_operators, record=False).results
assert unseen == [[1111, 2222, 3330, 4440]] * 4
print("gloo alone:", unseen[0], "on every rank")

# %% [markdown] id="02-56e339"
# **A missing member.** The other ranks never called, so rank 0 cannot finish. Without `run`, it raises `Connection closed by peer` once the others have ended, as in lesson 00; while they are alive, it hangs until the timeout. Keep the collective outside the `if`, and only the print inside.
#
# **Two operators.** Gloo alone reports no error, and every rank has the same numbers: two correct sums, and two that lack rank 0's part. In a training run nobody would notice. It is your job to make the calls agree.
#
# **Four roots.** Each rank hands out its own row and nobody takes another's, so there is no right result to arrive at.
#
# ## In practice
#
# * **In place or out of place.** `broadcast`, `reduce` and `all_reduce` overwrite their argument. The others fill a tensor that you provide. Only the exercises return new tensors.
# * **Without waiting.** With `async_op=True` a collective returns a Work immediately, as `isend` does. Until `wait()`, the rules of `isend` hold: do not write to its tensors, and do not read its results.
# * **Order.** Every rank must call the same collectives in the same order: the k-th call of one rank meets the k-th call of the others.
# * **Strides.** Gloo's collectives take a tensor whose elements fill one stretch of memory. It may be transposed, provided that it is transposed on all ranks. With `x[::2]`, gloo alone moves wrong elements and reports no error; `run` reports one. Send and recv take contiguous tensors only. `x.contiguous()` is safe everywhere; copy the result back if the call works in place.
# * **Objects.** `broadcast_object_list`, `all_gather_object` and their relatives pickle anything. Use them for settings, not for tensors, and only among ranks that you trust: a pickle can contain code.
# * **`barrier()`** moves no data: no rank leaves before all have come. Use it before you read a clock, or a file that another rank writes. Tensors need none: a recv already waits for its message.
# * **On GPUs**, NCCL has the same contracts. But a call only puts work into a queue of the GPU and returns, and `wait()` makes only the GPU wait, not the CPU.
#
# ## Roads not taken
#
# * **MPI** had these contracts and their names in 1994: `MPI_Bcast`, `MPI_Gather`, `MPI_Allgather`. With equal blocks, reduce_scatter is `MPI_Reduce_scatter_block`.
# * **JAX** writes them as functions of values: `psum`, `all_gather`, `psum_scatter`.
# * **all_to_all**, the collective that transposes the table, and collectives inside smaller groups come in lesson 08.
#
# ## What you can do now
#
# * ☑ say for seven collectives who has what before and after, who must call and what stays untouched;
# * ☑ choose a reduce operator, and explain why sums of floats may differ in the last digits;
# * ☑ count the messages and bytes of a pattern, and read them from a traffic matrix;
# * ☑ build a broadcast from send and receive, and perhaps a gather, a reduce, an all_gather and a reduce_scatter;
# * ☑ recognise a missing member by the hang or the error that it causes, and say why nobody notices two operators.
#
# **Next**, how long does a pattern take? Two numbers predict it: [03, the cost model](03_cost_model.ipynb).
#
# ## Sources
#
# * PyTorch: [Collective functions](https://docs.pytorch.org/docs/stable/distributed.html#collective-functions) (what each promises) · [ReduceOp](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.ReduceOp)
# * NVIDIA: [NCCL, collective operations](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html) (before and after, in pictures)
# * Message Passing Interface Forum, [*MPI: A Message-Passing Interface Standard*, version 4.0](https://www.mpi-forum.org/docs/mpi-4.0/mpi40-report.pdf), 2021, chapter 6 (collective communication), and its history of the standard (1.0: May 1994)
# * E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn, *Collective communication: theory, practice, and experience*, Concurrency and Computation 19(13), 2007, [doi:10.1002/cpe.1206](https://doi.org/10.1002/cpe.1206) (patterns and their bounds)
# * R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of Collective Communication Operations in MPICH*, International Journal of High Performance Computing Applications 19(1), 2005, [doi:10.1177/1094342005051521](https://doi.org/10.1177/1094342005051521) (trees and rings)
# * P. Patarasuk, X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, Journal of Parallel and Distributed Computing 69(2), 2009, [doi:10.1016/j.jpdc.2008.09.002](https://doi.org/10.1016/j.jpdc.2008.09.002) (how many bytes a rank has to send)
# * JAX: [jax.lax, parallel operators](https://docs.jax.dev/en/latest/jax.lax.html#parallel-operators)
