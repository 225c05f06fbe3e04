# %% [markdown] id="02-951898"
# # Talk to everybody at once
#
# **Build the collectives from send and receive, and learn their contracts.**
#
# ![Four ranks with four numbers each, as recorded: before, and after broadcast, gather, all_gather, all_reduce and reduce_scatter](../../figures/02_collectives.png)
#
# *Where this goes: one table, spread over four ranks, and the calls that bring every rank the part of it that it needs.*
#
# | | |
# |---|---|
# | **Do** | call seven collectives and look at who has what before and after; count their messages; build five of them yourself; break three |
# | **Learn** | the contract of each: who must call, what must agree, who has what afterwards, what stays untouched; reduce operators; what a pattern of messages costs |
# | **Need** | [01, Send and receive without ever standing still](01_point_to_point.ipynb): send, recv, isend, wait, deadlock |
# | **Time** | 60 minutes (estimated), one required exercise, four optional ones |

# %% [markdown] id="02-6f409e"
# ## The problem in one process
#
# Four rows, four columns: row *r* of our table is 1, 2, 3, 4 times 10ʳ. Each number tells which row it comes from, and a sum tells who is in it: 1111 is everybody once, 1011 lacks row 2, 1211 has it twice.
#
# In one process the whole table is yours, and any question is one line: a row, a column, the sum of each column. Check the first sum by hand: 1 + 10 + 100 + 1000. These four sums are our *reference*.
#
# Now spread the table, one row a rank, as training does with everything that is large: batches, gradients, parameters. The same questions become messages. A few of them are asked so often that each has a name and a call of its own, a *collective*. You have met one already: `all_reduce` gave every rank the sum of the gradients.

# %% id="02-ab18a2"
import torch
import torch.distributed as dist

from course_lib import Deadlock, Mismatch, check, draw, expect, run

def row():
    """This rank's row of the table."""
    return torch.tensor([1, 2, 3, 4]) * 10 ** dist.get_rank()

table = torch.stack([torch.tensor([1, 2, 3, 4]) * 10**rank for rank in range(4)])
reference = table.sum(0)
assert reference.tolist() == [1111, 2222, 3333, 4444]
assert table[0].nbytes == 32  # a row, in bytes

# %% [markdown] id="02-be8089"
# ## With a root: one to all, all to one
#
# In four collectives one rank is special. It is called the *root*: `src` where it gives, `dst` where it takes. A collective has a **contract** of four clauses. *Who must call*: every rank of the group, also one that gets nothing. *What must agree*: shape, dtype, root, operator. *Who has what afterwards*. *What stays untouched*. The last two differ from call to call:
#
# | call | before | afterwards | untouched |
# |---|---|---|---|
# | `broadcast(x, src)` | `x` on src | every rank's `x` is src's, in place | src's `x` |
# | `scatter(piece, pieces, src)` | a list `pieces` on src, one for each rank | rank *r*'s `piece` is number *r* | the list |
# | `gather(x, boxes, dst)` | `x` on every rank | dst's list `boxes` has them all, in rank order | every `x` |
# | `reduce(x, dst)` | `x` on every rank | dst's `x` is the sum of all | nothing is promised |
#
# The lists exist on the root alone; the others pass `None`. To keep the picture small, gather takes only the first number of each row.
#
# **Predict.** Rank 1 is dst of the reduce, and rank 0 went in with 1, 2, 3, 4. What is in rank 0's tensor afterwards? Decide before you look.

# %% id="02-6e3879"
def with_a_root(src=2, dst=1):
    rank, mine = dist.get_rank(), row()
    told, piece, total = mine.clone(), torch.empty_like(mine[:1]), mine.clone()
    dist.broadcast(told, src=src)
    dist.scatter(piece, list(mine.split(1)) if rank == src else None, src=src)
    boxes = [torch.empty_like(mine[:1]) for _ in range(4)] if rank == dst else None
    dist.gather(mine[:1], boxes, dst=dst)
    dist.reduce(total, dst=dst)
    return {"before": mine, "broadcast, src=2": told, "scatter, src=2": piece,
            "gather, dst=1": boxes, "reduce, dst=1": total}

rooted = run(with_a_root)
after = [result["reduce, dst=1"].tolist() for result in rooted.results]
assert after[1] == reference.tolist() and after[0] == [1111, 2222, 3, 4]
draw.values(rooted, caption="A cell has the colour of the rank it comes from; grey is new. "
            "After reduce, rank 1 has the sums, and the others hold what was left of the work.")

# %% [markdown] id="02-f4ce12"
# Did you say 1, 2, 3, 4? Rank 0 has 1111, 2222, 3, 4. It helped with the adding and used its own tensor as scratch paper; ranks 2 and 3 hold partial sums. The documentation promises the result on dst and says nothing of the others: another backend, or another length, leaves something else. **What a contract does not promise is not yours.** Whoever needs the row later hands over a `clone`, as `with_a_root` did.
#
# ## Which operation?
#
# A reduction needs an operation for which order and grouping do not matter, because the backend chooses both. The *reduce operator* says which: `dist.ReduceOp.SUM` is the default. With floats, the order does matter in the last digits: (a + b) + c may round differently from a + (b + c), so two backends may differ there. AVG divides the sum by the number of ranks and refuses integers. For integers there are bitwise operators as well: `BAND`, `BOR`, `BXOR`.

# %% id="02-6119fd"
def reduced(name):
    mine = row().double()
    dist.all_reduce(mine, op=getattr(dist.ReduceOp, name))
    return mine.tolist()

for name in ("SUM", "PRODUCT", "MAX", "MIN", "AVG"):
    print(f"{name:<8}", *(f"{number:>14,.2f}" for number in run(reduced, name).results[0]))

# %% [markdown] id="02-ccda35"
# ## What is inside: a pattern of messages
#
# Whoever builds a collective chooses a *pattern*: who sends to whom, in which order. Three for a broadcast: in a **star** the root tells everybody; in a **chain** each rank tells the next; in a **tree** everybody who knows tells one more.
#
# `follow` plays any pattern, given as a list of (from, to, how many thousand numbers). It moves bytes and no meaning: where a message belongs and what is done with it is left to you. No list can deadlock. All ranks read it from top to bottom, so the two ranks of the first message that is still open have nothing else to wait for.
#
# A broadcast needs n − 1 messages at least, since each of the others must hear of it, and so **(n − 1)·S bytes** in all, with S the bytes of the tensor: here 3 × 4,000. `draw.traffic` counts them from the record. Its rows send, its columns receive.

# %% id="02-4ca62c"
def follow(plan):
    rank, numbers = dist.get_rank(), torch.zeros(3000)
    for src, dst, thousands in plan:
        part = numbers[: int(1000 * thousands)]
        if rank == src:
            dist.send(part, dst)
        elif rank == dst:
            dist.recv(part, src)

def busiest(job):
    return max(job.trace.bytes_sent(rank) for rank in range(4))

n, S = 4, 4 * 1000  # ranks; bytes of a float32 tensor of 1000 numbers
plans = {"broadcast, star": [(2, 0, 1), (2, 1, 1), (2, 3, 1)],
         "broadcast, chain": [(2, 3, 1), (3, 0, 1), (0, 1, 1)],
         "broadcast, tree": [(2, 0, 1), (2, 3, 1), (0, 1, 1)],
         "gather, star": [(0, 1, 1), (2, 1, 1), (3, 1, 1)],
         "gather, chain": [(2, 3, 1), (3, 0, 2), (0, 1, 3)],
         "reduce, chain": [(2, 3, 1), (3, 0, 1), (0, 1, 1)]}
jobs = [run(follow, plan) for plan in plans.values()]
moved = [sum(message.nbytes for message in job.trace.messages) for job in jobs]
assert moved == [12_000, 12_000, 12_000, 12_000, 24_000, 12_000] and moved[0] == (n - 1) * S
assert [busiest(job) for job in jobs] == [12_000, 4_000, 8_000, 4_000, 12_000, 4_000]
draw.traffic(*jobs, titles=list(plans), caption="From rank 2 or to rank 1, as recorded. Only in "
             "the gathering chain does the message grow: a sum stays as long as one tensor.")

# %% [markdown] id="02-126de0"
# The star is the naive broadcast: its root sends all 12,000 bytes while the others send none, and with a thousand ranks it is 999 messages through one link. In the chain nobody sends more than S, but the last rank hears only after n − 1 messages in a row. The tree needs two rounds here, and in general ⌈log₂ n⌉. Which is fastest depends on n and S; the next lesson has the two numbers that decide.
#
# To *gather* in a chain means a pile that grows from rank to rank, 24,000 bytes in all, and dst receives (n − 1)·S either way. To *reduce* in a chain is cheap: a sum of three tensors is as long as one.
#
# ## Your turn: my_broadcast
#
# **Required · 02.1 · difficulty ●○○ · about 15 minutes**
#
# **Goal.** Afterwards every rank's `tensor` holds what src's held. Build it from send and receive, in whichever pattern you like; there is no budget. Any rank may be src.
#
# The *core* level plays contiguous float32 tensors on 2 to 5 ranks. *Sturdy* adds one rank, eight and more, empty tensors, strides and other dtypes: take it now or later. (What has strides travels as `x.contiguous()`, and that is a copy: whoever receives into it has to copy it back.)
#
# <details>
# <summary>Hint: two roles, and a trap</summary>
#
# A rank is src, or it is not. Write down for each of the two which calls it makes, and to whom; then count: every send needs one recv. The trap is in the words *in place*: the caller looks into the tensor object that it handed over. What does `tensor = inbox` change for the caller?
#
# </details>

# %% exercise="my_broadcast" role="answer" points=10 required=true difficulty=1
def my_broadcast(tensor: torch.Tensor, src: int) -> None:
    """Copy src's tensor into every rank's, in place, by send and receive.

    Every rank calls it, with a tensor of equal shape and dtype and the same src.

    Args:
        tensor: on src what is sent, elsewhere what is overwritten. It stays the same object;
            on src it keeps its values.
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
draw.traffic(job, caption="The pattern of your own broadcast: who sent how many bytes to whom?")

# %% exercise="my_broadcast" role="check"
check(my_broadcast)

# %% [markdown] id="02-b1a84c"
# ## Your turn: my_gather
#
# **Optional · 02.2 · difficulty ●○○ · about 10 minutes**
#
# The way back: dst collects. In practice this is how rank 0 comes by everybody's predictions.
#
# **Goal.** dst returns a list of n new tensors, the r-th one rank r's; the others return `None`. *New* means that the list shares memory with nothing, the rank's own entry included: whoever changes an entry must not change the caller's tensor.
#
# However you do it, dst has to receive (n − 1)·S bytes. That is why large things are seldom gathered.
#
# <details>
# <summary>Hint: how many inboxes?</summary>
#
# `[box] * 4` is a list of four places and one tensor. And recv without `src` takes whatever comes first; how would you know where it belongs?
#
# </details>

# %% exercise="my_gather" role="answer" points=10 required=false difficulty=1
def my_gather(tensor: torch.Tensor, dst: int) -> list[torch.Tensor] | None:
    """Collect every rank's tensor on dst, by send and receive.

    Every rank calls it, with a tensor of equal shape and dtype and the same dst.

    Args:
        tensor: this rank's part; it stays as it is.
        dst: the rank that collects.

    Returns:
        On dst a list of new tensors in rank order, its own part copied; elsewhere None.
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
draw.values(collected, caption="One number of each colour, in rank order, and on rank 1 alone: "
            "is that what you see?")

# %% exercise="my_gather" role="check"
check(my_gather)

# %% [markdown] id="02-640ee4"
# ## Your turn: my_reduce
#
# **Optional · 02.3 · difficulty ●●○ · about 15 minutes**
#
# **Goal.** Afterwards dst's `tensor` holds the reduction of all, by `op`: `"sum"`, `"prod"`, `"max"` or `"min"`. Yours shall promise more than torch does: **everybody else's tensor is as it was.**
#
# A star is right, and so are a chain and a tree, if whoever adds up on the way does so in a tensor of its own.
#
# <details>
# <summary>Hint: what does it start with?</summary>
#
# A sum can start from 0. What may a product start from, and the largest of three negative numbers? There is a start that is right for all four: a tensor that is part of the result anyway. See that it is not lost, and not counted twice.
#
# </details>

# %% exercise="my_reduce" role="answer" points=10 required=false difficulty=2
def my_reduce(tensor: torch.Tensor, dst: int, op: str) -> None:
    """Reduce every rank's tensor into dst's, in place, by send and receive.

    Every rank calls it, with a tensor of equal shape and dtype, the same dst and the same op.

    Args:
        tensor: this rank's part. On dst it is overwritten by the result; elsewhere it stays.
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

draw.values(run(try_reduce), caption="Only rank 1's row may change, and here it takes rank 3's "
            "colour: every largest number is rank 3's.")

# %% exercise="my_reduce" role="check"
check(my_reduce)

# %% [markdown] id="02-905904"
# ## Without a root: everybody gets something
#
# Three collectives have no root. Training uses these most.
#
# | call | before | afterwards | untouched |
# |---|---|---|---|
# | `all_gather_single(out, x)` | `x` on every rank | everybody's `x`, one after another, in every `out` | every `x` |
# | `all_reduce(x)` | `x` on every rank | the sum in every `x`, in place | nothing: `x` is overwritten |
# | `reduce_scatter_single(out, x)` | `x` on every rank, n blocks long | rank *r*'s `out` is block *r* of the sum | every `x` |
#
# The endings `_single` mean one long tensor in place of a list; `all_gather` and `reduce_scatter` with lists exist, too. Code written before these names says `all_gather_into_tensor` and `reduce_scatter_tensor`, and both still work.
#
# `reduce_scatter` is the one that people have not met. Everybody's tensor is cut into n *blocks*; block *r* of the sum ends on rank *r* and nowhere else. Each rank is the root of a small reduce. It looks like half a result, and it is exactly half: reduce_scatter followed by all_gather is an all_reduce, as the assertion inside the function says. When a model is so large that no rank holds all of it, a rank wants its own block only, and the first half is all that is needed.

# %% id="02-cf1403"
def without_a_root():
    mine = row()
    everything, everywhere, block = mine.new_empty(4), mine.clone(), mine.new_empty(1)
    dist.all_gather_single(everything, mine[:1])
    dist.all_reduce(everywhere)
    dist.reduce_scatter_single(block, mine)
    again = mine.new_empty(4)
    dist.all_gather_single(again, block)
    assert again.equal(everywhere) and mine.equal(row())
    return {"before": mine, "all_gather": everything, "all_reduce": everywhere,
            "reduce_scatter": block}

rootless = run(without_a_root)
assert [result["reduce_scatter"].item() for result in rootless.results] == reference.tolist()
draw.values(rootless, caption="all_gather brings one number of each rank to all. all_reduce "
            "brings all sums to all, reduce_scatter each sum to one rank.")

# %% [markdown] id="02-eea1cf"
# ## What reduce_scatter has to cost
#
# Three patterns for it, on tensors of S = 4,000 bytes, in four blocks of 1,000. **Through a root**: everybody sends all to rank 0, which adds up and hands out blocks. **Everything to everybody**: each rank adds up all of it and throws three quarters away. **Each block to its owner**: of my tensor I send block 1 to rank 1, block 2 to rank 2, and so on.
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
into_root = sum(message.nbytes for message in naive.trace.messages if message.dst == 0)
assert into_root == (n - 1) * S == 12_000 and busiest(naive) == S
assert busiest(wasteful) == (n - 1) * S == 12_000
assert busiest(blocks) == (n - 1) * S // n == 3_000
draw.traffic(naive, wasteful, blocks,
             titles=["through a root", "everything to everybody", "each block to its owner"],
             caption="Three ways to a reduce_scatter of 4 kB: a column of 12 kB into rank 0; "
             "12 kB from everybody; 3 kB from everybody.")

# %% [markdown] id="02-2ccc4c"
# Each block to its owner costs **(n − 1)/n · S bytes a rank**, whatever the number of ranks: never more than the tensor itself. Nobody can do with less in all: for each of the n blocks, the numbers of n − 1 ranks have to leave home (Patarasuk and Yuan, 2009, count this way for all_reduce). Through the root a rank sends S, a third more in our case, which does not look bad until you see the column: 12,000 bytes queue at rank 0, while everybody else waits.
#
# The matrix in the middle is also that of an all_gather, and there nothing of it is waste: everybody wants everything, and (n − 1)·S have to come in.
#
# `draw.traffic` sees messages, not what a backend does inside of `all_reduce`. Of a collective the record has the call, its tensors and its times.
#
# ## Your turn: my_all_gather
#
# **Optional · 02.4 · difficulty ●●○ · about 15 minutes**
#
# **Goal.** Every rank returns a list of n new tensors in rank order. Now everyone has something to send and something to receive, and you know from lesson 01 what happens when everyone sends first.
#
# <details>
# <summary>Hint: three ways out</summary>
#
# Let one rank after another have the word. Or begin all messages before you wait for any. Or pass tensors round a ring, as in `pass_right`, n − 1 times, each time what came last: whose tensor arrives in step *k*?
#
# </details>

# %% exercise="my_all_gather" role="answer" points=10 required=false difficulty=2
def my_all_gather(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Collect every rank's tensor on every rank, by send and receive.

    Every rank calls it, with a tensor of equal shape and dtype.

    Args:
        tensor: this rank's part; it stays as it is.

    Returns:
        A list of new tensors in rank order, the same on every rank, the own part copied.
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
draw.traffic(job, caption="Whatever the pattern, every column adds up to 96 bytes at least: "
             "three rows of the table have to arrive at each rank.")

# %% exercise="my_all_gather" role="check"
check(my_all_gather)

# %% [markdown] id="02-06b9cb"
# ## Your turn: my_reduce_scatter
#
# **Optional · 02.5 · difficulty ●●● · about 20 minutes**
#
# **Goal.** The first dimension of `tensor` is a multiple of n. Rank *r* returns block *r* of the sum, as a new tensor. The argument stays as it is.
#
# **Budget.** No rank sends more than (n − 1)/n of its tensor's bytes. It is a level of its own: right sums by too many bytes earn *core*. Get the sums right first, then the bytes.
#
# <details>
# <summary>Hint: n small reduces at once</summary>
#
# Rank *r* is the root for block *r*. Whom does it have to hear, and what does it owe to each of the others? The blocks of a tensor are views of it: adding into one changes the caller's tensor, and one that is on its way may not be written.
#
# </details>

# %% exercise="my_reduce_scatter" role="answer" points=10 required=false difficulty=3
def my_reduce_scatter(tensor: torch.Tensor) -> torch.Tensor:
    """Sum every rank's tensor and return this rank's block of the sum, by send and receive.

    Every rank calls it, with a tensor of equal shape and dtype.

    Args:
        tensor: its first dimension is a multiple of the number of ranks n; it stays as it is.

    Returns:
        Block number rank of the n equal blocks of the sum, along the first dimension.
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
draw.traffic(job, caption="A rank's tensor has 32 bytes, so the budget is 24: does any row of "
             "this matrix add up to more?")

# %% exercise="my_reduce_scatter" role="check"
check(my_reduce_scatter)

# %% [markdown] id="02-e5fc2a"
# ## Break it: a member is missing
#
# The result of a reduce is for dst alone. So, somebody thinks, why should the others bother? The mistake likes to hide behind `if rank == 0`, in the lines that print or save something.

# %% id="02-4172c5"
def log(loss):
    if dist.get_rank() == 0:
        dist.reduce(loss, dst=0)
        print("mean loss:", loss.item() / dist.get_world_size())

with expect(Deadlock):
    run(log, torch.ones(1))

# %% [markdown] id="02-00329d"
# Nobody else called, so rank 0 waits for ever. Keep the collective outside of the `if`, and only the print inside.
#
# ## Break it: they do not agree
#
# Two ways to break the second clause: rank 3 asks for the maximum where the others add up; every rank takes itself for the root of a broadcast. **Predict** what gloo alone would make of the first one. `record=False` takes our recorder away, which is what compares the calls; the last line shows the result.

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
# No error, and the same numbers everywhere: two right sums, and two that lack rank 0. In a training run, nobody would look twice. A mismatch that is *told* is good fortune; agreeing on every call is your part.
#
# ## In practice
#
# * **In place or out of place.** `broadcast`, `reduce` and `all_reduce` overwrite their argument; the others fill a tensor that you provide. Only the exercises return new ones.
# * **Later.** With `async_op=True` a collective returns a Work at once. The rules of `isend` hold until `wait()`: write none of its tensors, read none of its results.
# * **Order.** Ranks need not be equally fast, but each has to call the same collectives in the same order: the k-th call of one rank meets the k-th of the others.
# * **Strides.** gloo takes a tensor for one stretch of memory; hand over `x.contiguous()`, and copy back what is in place.
# * **Objects.** `broadcast_object_list`, `all_gather_object` and their kin pickle anything. For settings, not for tensors; and whoever unpickles runs what the sender wishes.
# * **`barrier()`** moves no data: nobody leaves before everybody has come. It is for clocks and for files. Messages bring their own order; tensors need no barrier.
# * **On GPUs**, NCCL has the same contracts. A call only puts work into a queue of the GPU and returns; `wait()` orders what comes after it in that queue. Nothing on this page was measured on a GPU.
#
# ## Roads not taken
#
# * **MPI** had these contracts in 1994, and the names: `MPI_Bcast`, `MPI_Gather`, `MPI_Allgather`; with equal blocks, reduce_scatter is `MPI_Reduce_scatter_block`.
# * **JAX** writes them as functions of values, inside a compiled program: `psum`, `all_gather`, `psum_scatter`.
# * **all_to_all**, the collective that transposes the table, has its place in a later lesson, and so have collectives inside smaller groups.

# %% [markdown] id="02-fb39db"
# ## What you can do now
#
# * ☑ say for seven collectives who has what before and after, who must call and what stays untouched;
# * ☑ choose a reduce operator, and explain why sums of floats may differ in the last digits;
# * ☑ count the messages and bytes of a pattern, and read them from a traffic matrix;
# * ☑ build a broadcast, and a gather, a reduce, an all_gather and a reduce_scatter, from send and receive;
# * ☑ recognise a missing member, two operators and two roots from what they leave behind.
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
# * P. Patarasuk, X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, Journal of Parallel and Distributed Computing 69(2), 2009, [doi:10.1016/j.jpdc.2008.09.002](https://doi.org/10.1016/j.jpdc.2008.09.002) (what must leave home)
# * JAX: [jax.lax, parallel operators](https://docs.jax.dev/en/latest/jax.lax.html#parallel-operators)
