# %% [markdown] id="08-b7fc16"
# # Talk inside rows and columns
#
# **Put the ranks into a grid, let each row and each column talk by itself, and keep everybody in order.**
#
# ![Nine ranks in three rows of three, a line through each row and each column; the row and the column of the slow rank in the middle are marked as late](../../figures/08_groups.png)
#
# *Where this goes: nine ranks, six groups. One rank is slow, and only its row and its column notice.*
#
# | | |
# |---|---|
# | **Do** | make groups by hand and with DeviceMesh, sum in rows and in columns, watch what a slow rank delays, transpose a matrix that no rank holds, break the order |
# | **Learn** | the rules of `new_group`; a rank's numbers in the world and in its groups; what a group saves; all_to_all and its cost; why groups deadlock, and the one habit that prevents it |
# | **Need** | lessons [02](02_collectives.ipynb) (collectives), [03](03_cost_model.ipynb) (α, β) and [04](04_ring_all_reduce.ipynb) (the ring and its time) |
# | **Time** | about 55 minutes with the required exercise, 100 with the two optional ones as well |

# %% [markdown] id="08-20627c"
# ## The problem, small enough for hand calculation
#
# So far every collective meant *all* ranks. Large models are trained differently. The ranks stand in a grid: those in one row hold the pieces of one copy of the model, and those in one column hold the same piece of different copies. Activations go along the rows, gradients go down the columns. Nobody needs to hear everything.
#
# Here is a small grid, with two rows of three. Rank r holds the number r. Each rank wants two sums, that of its row and that of its column:
#
# ```text
# 0  1  2  |  3
# 3  4  5  |  12
# ---------
# 3  5  7
# ```
#
# In one process these are two lines of torch: our *reference*. The naive way for six ranks is to gather all numbers everywhere, and to throw most of them away. Our grid is not square, because in a 2×2 grid a mix-up of rows and columns is hard to notice. Grids of more than four ranks are simulated here.
#
# For the timing below, `elements` makes the tensors longer: a rank fills its tensor with its number.

# %% id="08-d6730f"
import math
import warnings

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from course_lib import Deadlock, Mismatch, Network, check, compute, draw, expect, run, simulate

numbers = torch.arange(6.0).reshape(2, 3)
rows, columns = numbers.sum(dim=1).tolist(), numbers.sum(dim=0).tolist()
reference = [(rows[rank // 3], columns[rank % 3]) for rank in range(6)]
print("rows:", rows, "  columns:", columns)

# %% id="08-7fd751"
def in_the_world(elements=1):
    rank, everything = dist.get_rank(), torch.empty(6 * elements)
    dist.all_gather_single(everything, torch.full((elements,), float(rank)))
    grid = everything.reshape(2, 3, elements)[..., 0]
    return grid[rank // 3].sum().item(), grid[:, rank % 3].sum().item()

assert simulate(in_the_world, world_size=6).results == reference

# %% [markdown] id="08-fb86cf"
# ## A group is a promise
#
# `dist.new_group(ranks)` makes a **group**, also called a process group: ranks that can have collectives of their own. Every collective takes it as `group=`; without one it means the group of all ranks. Your program has to keep three rules:
#
# 1. **Everybody calls `new_group`**, even ranks that are not in the group.
# 2. **Everybody makes the same groups in the same order.** The k-th call of each rank is for the k-th group.
# 3. **Only members may use it.** For all others `new_group` returns −100, the constant `GroupMember.NON_GROUP_MEMBER`. A collective with `group=-100` does nothing but warn, and leaves the tensor as it was. `group=None` is the group of all ranks.
#
# Why so strict? Ranks of a group find one another through the store, under the number of the group. A rank that has counted differently looks in the wrong place.
#
# In the cell below every rank makes five groups and keeps two. The picture is drawn from what the ranks said.

# %% id="08-098b7c"
ROWS, COLUMNS = [[0, 1, 2], [3, 4, 5]], [[0, 3], [1, 4], [2, 5]]

def my_group(lists):
    mine = None
    for ranks in lists:
        group = dist.new_group(ranks)  # everybody makes it …
        if dist.get_rank() in ranks:
            mine = group               # … and its members keep it
    return mine

def sums(row, column, elements=1):
    across, down = (torch.full((elements,), float(dist.get_rank())) for _ in range(2))
    dist.all_reduce(across, group=row)
    dist.all_reduce(down, group=column)
    return across[0].item(), down[0].item()

def in_groups(elements=1):
    return sums(my_group(ROWS), my_group(COLUMNS), elements)

grid = simulate(in_groups, world_size=6)
assert grid.results == reference
draw.mesh(grid, (2, 3), caption="Who talks to whom: a line through the ranks of each group.")

# %% id="08-5db6c1"
with warnings.catch_warnings(action="ignore"):  # rank 2 breaks rule 3, and torch only warns
    ruled = simulate(lambda: sums(dist.new_group([0, 1]), None), world_size=3).results
assert ruled == [(1, 3), (1, 3), (2, 3)]  # it keeps its 2; None means the world
draw.timeline(grid, caption="The two rows talk at the same time, and so do the three columns. The "
              "numbers in brackets are the ranks of the group.")

# %% [markdown] id="08-0c696a"
# ## What a group saves
#
# Groups save twice. A rank hears only what it needs, and groups without a common rank talk at the same time.
#
# Take S = 2²⁰ bytes per rank, and let collectives run as rings over the links of lesson 04: α is 5 µs, and 1/β is 25 GB/s. Gathering everything takes n−1 steps in which each rank passes on a whole tensor:
#
# $$T = (n-1)(\alpha+S\beta)$$
#
# An all_reduce in a group of g ranks takes what lesson 04 found, with g in place of n: 2(g−1)·(α + S/g·β). How many ranks the world has does not matter. In our grid this happens twice: in a row of three, then in a column of two. The cell compares both formulas with the recorded times, to nine digits.

# %% id="08-962ca9"
alpha, beta, S, rings = 5e-6, 1 / 25e9, 2**20, Network(collectives="messages")  # as rings
everything, by_groups = (simulate(way, S // 4, world_size=6, network=rings).seconds
                         for way in (in_the_world, in_groups))
assert math.isclose(everything, 5 * (alpha + S * beta), rel_tol=1e-9)
assert math.isclose(by_groups, 4 * (alpha + S/3 * beta) + 2 * (alpha + S/2 * beta), rel_tol=1e-9)
print(f"gather all: {1e6 * everything:.0f} µs   row, then column: {1e6 * by_groups:.0f} µs")

# %% [markdown] id="08-140132"
# ## A rank has several numbers
#
# In a group the members are numbered anew, from 0, in the order of their ranks. This number is the **group rank**. So rank 4 is number 1 of its row (3, 4, 5) and number 1 of its column (1, 4). `dist.get_rank(group)` is a rank's group rank, and `dist.get_global_rank(group, number)` leads back.
#
# Here is the trap. In `broadcast(x, src=1, group=row)` the root is rank 1 *of the world*, whatever the group is. Rank 1 is not in the second row, and torch raises a ValueError there. To name a root by its group rank, write `group_src=`; then one line is right for every row. `send` and `recv` have `group_dst` and `group_src` as well.
#
# **Predict.** All six ranks call `broadcast(x, group_src=1, group=row)`. Whose number does rank 5 get?

# %% id="08-d686f6"
guess = None

# %% id="08-a6367f"
def three_numbers():
    row, column = my_group(ROWS), my_group(COLUMNS)
    x = torch.tensor([dist.get_rank()])
    dist.broadcast(x, group_src=1, group=row)
    return dist.get_rank(), dist.get_rank(row), dist.get_rank(column), x.item()

told = simulate(three_numbers, world_size=6).results
print(f"your guess: {guess}   recorded: {told[5][-1]}")
assert [got for *_, got in told] == [1, 1, 1, 4, 4, 4]
for world, in_row, in_column, _ in told:
    print(f"rank {world}: number {in_row} of its row, {in_column} of its column")

# %% [markdown] id="08-d4e5d8"
# ## DeviceMesh, the normal way
#
# Few programs still write these loops. A **DeviceMesh** takes the shape of the grid and a name for each dimension, makes all groups in an order that is the same everywhere, and hands out this rank's own.
#
# Mind what a dimension means. The first one of the shape (2, 3) counts the rows. In `get_group("down")` only the row number changes: its ranks form a column. The dimensions are usually named after the kind of parallelism, such as `("dp", "tp")` for data and tensor parallelism. The last dimension is the one whose ranks are neighbours.
#
# The cell makes all groups in both ways and asserts that they are the same.

# %% id="08-f0d7f6"
def both_ways():
    members = dist.get_process_group_ranks
    mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("down", "along"))
    by_mesh = members(mesh.get_group("along")), members(mesh.get_group("down"))
    by_hand = members(my_group(ROWS)), members(my_group(COLUMNS))
    return by_mesh, by_hand, mesh.get_coordinate()

both = simulate(both_ways, world_size=6).results
assert all(by_mesh == by_hand for by_mesh, by_hand, _ in both)
assert [place for *_, place in both] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
print("rank 4, along and down:", *both[4][0], "at", both[4][2])

# %% [markdown] id="08-f8a87c"
# ## Your turn: grid_groups
#
# **Required · 08.1 · difficulty ●○○ · about 15 minutes**
#
# **Goal.** Write for a grid of any shape what `my_group` does for ours: `grid_groups(rows, cols)` returns this rank's row group and its column group. The grid is filled row by row, and rows · cols is the number of ranks. A grid may have one row or one column only; a group of one rank is a group, too. Any way of making groups passes, a DeviceMesh too. But use `new_group`: the mistakes that you can make with it happen in large programs, too. (Rule 1 has an exception: with `use_local_synchronization=True` only members need to call.)
#
# <details>
# <summary>Hint: which ranks are in a row?</summary>
#
# Write the numbers of a grid of three rows and four columns on paper. How far is it from one rank to the next in a row, and in a column? With which rank does row r begin?
#
# </details>

# %% exercise="grid_groups" role="answer" points=10 required=true difficulty=1
def grid_groups(rows: int, cols: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """Make the groups of all rows and columns of a grid of ranks; return this rank's two.

    Every rank calls it with the same numbers; rows · cols is the number of ranks. The grid is
    filled row by row: ranks 0 to cols − 1 are the first row.

    Returns:
        The group of this rank's row, and the group of its column, in this order.

    With rows=2 and cols=3, rank 4 gets the group of ranks 3, 4, 5 and that of ranks 1, 4.
    """
    ### BEGIN SOLUTION
    rank, found = dist.get_rank(), []
    across = [list(range(first, first + cols)) for first in range(0, rows * cols, cols)]
    down = [list(range(first, rows * cols, cols)) for first in range(cols)]
    for members in across + down:
        made = dist.new_group(members)
        if rank in members:
            found.append(made)
    return found[0], found[1]
    ### END SOLUTION

# %% exercise="grid_groups" role="try"
mine = simulate(lambda: sums(*grid_groups(2, 3)), world_size=6)
print("sums of row and column:", mine.results)
draw.mesh(mine, (2, 3), caption="Your groups: there should be a line through each row and column.")

# %% exercise="grid_groups" role="check"
check(grid_groups)

# %% [markdown] id="08-8a1841"
# ## The price of a slow rank
#
# A collective of all ranks waits for the slowest of them. What does a straggler cost in a grid?
#
# Nine ranks stand in three rows of three. In each step a rank computes for 20 µs, starts an all_reduce in its row and one in its column, and waits for both. In the first step rank 4, in the middle, takes 100 µs. Both calls are started with `async_op=True`. If they blocked, a rank that waits in its row would be late in its column as well. Here α is 1 µs, and an all_reduce of three ranks takes 2α. A link does one call at a time, so calls that share a rank queue up: those that rank 4 does not delay end 2, 4, 6 or 8 µs after the 20 µs of computing. (On gloo it is fine to have both calls in flight. On NCCL wait for the first before you start one in another group: see "In practice".)
#
# **Predict.** How many of the nine ranks finish the first step late, rank 4 included?

# %% id="08-4c3578"
guess = None

# %% id="08-2e957a"
def steps(count):
    mesh = init_device_mesh("cpu", (3, 3), mesh_dim_names=("down", "along"))
    for step in range(count):
        compute(100e-6 if dist.get_rank() == 4 and step == 0 else 20e-6)
        works = [dist.all_reduce(torch.ones(1), group=mesh.get_group(name), async_op=True)
                 for name in ("along", "down")]
        for work in works:
            work.wait()

def late_ranks(job):  # with a call that ended after rank 4 came
    return sorted({event.rank for event in job.trace.events if event.completed > 100e-6})

once, twice = (simulate(steps, k, world_size=9, network=Network(latency=1e-6)) for k in (1, 2))
print(f"your guess: {guess}   recorded: {len(late_ranks(once))}, ranks {late_ranks(once)}")
assert late_ranks(once) == [1, 3, 4, 5, 7] and late_ranks(twice) == list(range(9))
ends = {round(1e6 * event.completed) for event in once.trace.ops("all_reduce")}
assert ends == {22, 24, 26, 28, 102, 104}
draw.timeline(once, caption="One slow rank, simulated. Its row (3, 5) and its column (1, 7) wait "
              "for it, hatched. The four ranks in the corners notice nothing.")

# %% id="08-cb170e"
draw.mesh(once, (3, 3), marked=late_ranks(once), caption="Late after the first step: the row and "
          "the column of rank 4. After the second step all nine are late.")

# %% [markdown] id="08-6afbdc"
# In a grid of r rows and c columns, r + c − 1 ranks are late; with one collective over all ranks, all r·c. But the other ranks are spared for one step only. In the next step each of them has a late neighbour in its row or column, and after two steps everybody is late: `twice` asserts it. Groups do not remove the price of a slow rank; they delay it. That pays if a *different* rank is slow in each step by chance, because then the delays can overlap. It does not help if one machine is slow for good.
#
# ## Everybody to everybody
#
# One collective is still missing. In an **all_to_all** every rank has one block for each rank, and sends it there (its own block stays): afterwards rank r has block r of everybody. Think of the blocks as a square table, a row per rank. An all_to_all turns rows into columns: it *is* a transpose, of blocks. Its contract, in the words of lesson 02:
#
# | call | before | afterwards | untouched |
# |---|---|---|---|
# | `all_to_all_single(out, x)` | `x` on every rank, cut along its first dimension into n blocks of equal length | block *k* of rank *r*'s `out` is block *r* of rank *k*'s `x` | every `x` |
# | `all_to_all(outs, ins)` | a list `ins` on every rank, one tensor for each rank | entry *k* of rank *r*'s `outs` is entry *r* of rank *k*'s `ins` | every `ins` |
#
# So let us transpose a matrix A that is too large for one rank. Rank r has row r of A and wants row r of Aᵀ, which is column r of A. In one process it is `A.T`. The naive way, in the next cell, sends all rows to everybody.

# %% id="08-8bef15"
A = torch.tensor([[10.0 * r + c for c in range(4)] for r in range(4)])

def whole_rows():
    rank, mine, table = dist.get_rank(), A[dist.get_rank()].clone(), A.new_empty(4, 4)
    going = [dist.isend(mine, other) for other in range(4) if other != rank]
    for other in range(4):
        if other == rank:
            table[other] = mine
        else:
            dist.recv(table[other], other)
    for work in going:
        work.wait()
    return table[:, rank].clone()

lavish = run(whole_rows)
assert all(torch.equal(row, A.T[rank]) for rank, row in enumerate(lavish.results))
assert lavish.trace.bytes_sent(0) == 3 * 16
draw.traffic(lavish, caption="Whole rows to everybody: 48 bytes per rank. Each receiver keeps "
             "one number of four.")

# %% id="08-3a0db9"
def one_call():
    mine = A[dist.get_rank()].clone()
    column = torch.empty(4)
    dist.all_to_all_single(column, mine)
    return {"before: rows of A": mine, "after: rows of Aᵀ": column}

turned = run(one_call)
assert torch.equal(torch.stack([both["after: rows of Aᵀ"] for both in turned.results]), A.T)
draw.values(turned, caption="An all_to_all of four ranks with blocks of one number. Each rank "
            "gives a number to every rank, and has one of each colour afterwards.")

# %% [markdown] id="08-ad38bd"
# ## What it costs
#
# With S bytes per rank, a block has S/n bytes, and n−1 of them leave the rank: (n−1)/n·S, less than one tensor. Gathering moves (n−1)·S. If in step d = 1 … n−1 every rank sends to the rank d places after it, then
#
# $$T = (n-1)\left(\alpha+\frac{S}{n}\beta\right) \text{ for all\_to\_all, and } T = (n-1)(\alpha+S\beta) \text{ for gathering everything}$$
#
# (Thakur, Rabenseifner and Gropp, 2005). The more ranks there are, the smaller the blocks become. So the bytes of an all_to_all take about as long on 32 ranks as on 8. The latencies grow: n−1 messages leave every rank, one after another. That is the weak side of all_to_all: see "Roads not taken". (A rank that starts all its sends and receives at once pays only one α in our model: see the box "What overlaps" in [lesson 03](03_cost_model.ipynb).)

# %% id="08-ffdfd2"
def exchange(elements):
    dist.all_to_all_single(torch.empty(elements), torch.zeros(elements))

def gather(elements):
    dist.all_gather_single(torch.empty(dist.get_world_size() * elements), torch.zeros(elements))

worlds = (2, 4, 8, 16, 32)
took = {way: [simulate(way, S // 4, world_size=n, network=rings).seconds for n in worlds]
        for way in (exchange, gather)}
for n, exchanged, gathered in zip(worlds, took[exchange], took[gather], strict=True):
    assert math.isclose(exchanged, (n - 1) * (alpha + S / n * beta), rel_tol=1e-9)
    assert math.isclose(gathered, (n - 1) * (alpha + S * beta), rel_tol=1e-9)
draw.lines({"all_gather": (worlds, [1e6 * s for s in took[gather]]),
            "all_to_all": (worlds, [1e6 * s for s in took[exchange]])}, xlabel="ranks n",
           ylabel="time, µs", loglog=True, exact=True, caption="2²⁰ bytes per rank, simulated: "
           "gathering pays for n − 1 tensors, all_to_all for less than one and for its latencies.")

# %% [markdown] id="08-dfd2b6"
# ## Two more: all_to_all by hand, and a transpose
#
# **Optional · 08.2 my_all_to_all ●●○ · about 25 minutes**
#
# **Goal.** Each rank has a list of n blocks, 1-D tensors of one dtype; block k is for rank k. Return a list of new tensors: entry k is what rank k had for this rank. The blocks go by `send` and `recv`, `isend` and `irecv`, alone or in a batch. **Budget:** each rank sends at most n−1 messages, which in all hold no more bytes than its blocks for others. In the core cases all blocks of all ranks are equally long. In the sturdy cases lengths differ, and a rank does not know how much it will receive. One collective, with at most 8·n² bytes in and 8·n² out on each rank, may carry the lengths. (`all_gather_object` counts as two: it runs two collectives.)
#
# **Optional · 08.3 transpose ●●○ · about 20 minutes**
#
# **Goal.** A has n·k rows and m columns, and n divides m. Rank r holds rows r·k to (r+1)·k − 1, and returns its m/n rows of Aᵀ, contiguous. **Budget:** one collective, `all_to_all_single` or `all_to_all`, of no more bytes than the rank's rows have, and nothing else. In the sturdy cases a rank's rows may be strided. `all_to_all_single` needs a contiguous input and output. `empty_like(x.t())` is not contiguous: it keeps the strides, and gloo fills it in the wrong order without a word.
#
# <details>
# <summary>Hint for my_all_to_all: my block, your block</summary>
#
# The length of what arrives from rank k is rank k's decision. In the table of all lengths, with a row for each sender, what you send is your row and what you receive is your column.
#
# </details>
#
# <details>
# <summary>Hint for transpose: what all_to_all does not do</summary>
#
# It moves blocks and changes nothing inside them. Cut your k × m rows on paper into n blocks of k × m/n, and draw where each of them lies in Aᵀ. `all_to_all_single` cuts along the first dimension; `t()` makes no copy.
#
# </details>

# %% exercise="my_all_to_all" role="answer" points=5 required=false difficulty=2
def my_all_to_all(blocks: list[Tensor]) -> list[Tensor]:
    """Give block k to rank k; return everybody's block for this rank, in rank order.

    Every rank calls it with n contiguous or strided 1-D tensors of one dtype, perhaps empty.
    It leaves them as they were and returns memory shared with nothing, its own block included.

    Budget: at most n − 1 sends a rank, no byte more than its blocks for others have. One
    collective, with at most 8·n² bytes in and 8·n² out on each rank, may carry lengths.

    With [1], [2] on rank 0 and [10], [20] on rank 1, rank 0 gets [1], [10], rank 1 [2], [20].
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = torch.tensor([block.numel() for block in blocks])
    theirs = torch.empty_like(mine)
    dist.all_to_all_single(theirs, mine)
    arrived = [blocks[0].new_empty(length) for length in theirs.tolist()]
    arrived[rank].copy_(blocks[rank])
    for step in range(1, n):
        to, source = (rank + step) % n, (rank - step) % n
        leaving = dist.isend(blocks[to].contiguous(), to)
        dist.recv(arrived[source], source)
        leaving.wait()
    return arrived
    ### END SOLUTION

# %% exercise="my_all_to_all" role="try"
def by_hand():
    return torch.cat(my_all_to_all(list(A[dist.get_rank()].clone().split(1))))

lean = run(by_hand)
assert all(torch.equal(row, A.T[rank]) for rank, row in enumerate(lean.results))
draw.traffic(lavish, lean, titles=["whole rows", "my_all_to_all"],
             caption="The same transpose twice: 16 bytes per message, and 4.")

# %% exercise="my_all_to_all" role="check"
check(my_all_to_all)

# %% exercise="transpose" role="answer" points=5 required=false difficulty=2
def transpose(my_rows: Tensor) -> Tensor:
    """Transpose a matrix that lies in blocks of rows on n ranks; return this rank's new rows.

    Every rank calls it with k × m numbers, rows rank·k to (rank + 1)·k − 1 of A; n divides m.

    Returns:
        Rows rank·m/n to (rank + 1)·m/n − 1 of the transposed matrix: m/n × n·k, contiguous.

    Budget: one call of all_to_all_single or all_to_all, of no more bytes than my_rows has.

    With [[1, 2]] and [[10, 20]] on two ranks they get [[1, 10]] and [[2, 20]].
    """
    ### BEGIN SOLUTION
    n = dist.get_world_size()
    leaving = [block.t().contiguous() for block in my_rows.chunk(n, dim=1)]
    arriving = [torch.empty_like(block) for block in leaving]
    dist.all_to_all(arriving, leaving)
    return torch.cat(arriving, dim=1)
    ### END SOLUTION

# %% exercise="transpose" role="try"
def turn(k):
    r = dist.get_rank()
    return transpose(torch.tensor([[10 * (r * k + i) + j for j in range(4)] for i in range(k)]))

for rank, new_rows in enumerate(run(turn, 3, world_size=2).results):
    print(f"rank {rank}:", new_rows.tolist())

# %% exercise="transpose" role="check"
check(transpose)

# %% [markdown] id="08-e3d107"
# ## Break it: two groups, two orders
#
# Ranks 0 and 3 sum in their row first, ranks 1 and 2 in their column first. Every line is right by itself, and in each group all members make the same call. Only the *orders* differ. Before you run the cells, draw the four ranks (0 and 1 are the first row) and an arrow from each to the one that it waits for.

# %% id="08-6ca741"
def any_order():
    rank, x = dist.get_rank(), torch.ones(1)
    row, column = my_group([[0, 1], [2, 3]]), my_group([[0, 2], [1, 3]])
    if rank in (0, 3):
        dist.all_reduce(x, group=row)
        dist.all_reduce(x, group=column)
    else:
        dist.all_reduce(x, group=column)
        dist.all_reduce(x, group=row)

with expect(Deadlock) as caught:
    run(any_order)

# %% id="08-778e88"
draw.waits(caught.error, caption="Rank 0 waits for rank 1 in a row, rank 1 for rank 3 in a column, "
           "3 for 2 and 2 for 0: the circle of lesson 01, made of collectives. (The arrows cross "
           "because the picture places ranks by number.)")

# %% [markdown] id="08-04be65"
# The habit that prevents it: **there is one order of all collectives in the program, and every rank follows it, skipping those of groups that it is not in.** Then no circle can close. An order that comes from a set or from the data is not an order you can rely on. Python randomizes string hashes, so a set of strings has a different order in each process. This mistake needs only one group. NVIDIA's ALCHEMI toolkit issued a collective for each key of a dictionary that was filled from such a set, each rank in its own order, until NCCL's watchdog ended the job (nvalchemi-toolkit#143, 2026). The remedy was one word: `sorted`. A production job hung because its ranks used two groups in two orders and waited for their GPUs between the two calls (torchrec#4149, 2026).
#
# The other classic mistake is a group that only its members make. It breaks rules 1 and 2 at once, because each half of the ranks takes its own group for the first one (pytorch#130102, 2024). The error below is the course's own. Plain torch does not notice: `new_group` may hang, or it returns, and the next collective may pair ranks of different halves and sum the wrong numbers.

# %% id="08-08aa14"
def each_half():
    dist.new_group([0, 1] if dist.get_rank() < 2 else [2, 3])

with expect(Mismatch):
    simulate(each_half, world_size=4)

# %% [markdown] id="08-9f5ece"
# ## In practice
#
# * **Meshes everywhere.** `init_device_mesh` is where a program for several kinds of parallelism begins. `fully_shard` and DTensor take a mesh; `mesh["tp"]` is a slice of it. The documentation asks you to give the same shape on every rank.
# * **Neighbours in the last dimension.** Its ranks are usually on one machine, so the parallelism that communicates most belongs there. Lesson 09 counts what that saves.
# * **A group is not free.** On NCCL each one is a communicator of its own. Make groups once, at the start, and keep them.
# * **On GPUs the order matters more.** Torch's documentation of `new_group` says that with several NCCL groups you must ensure one consistent order of collectives on all ranks, and wait for asynchronous ones before you use another group.
# * **Where all_to_all is used.** Mixtures of experts send each token to the rank of its expert and back (GShard, 2020). Sequence parallelism turns "a part of the sequence, all heads" into "all of the sequence, some heads" (DeepSpeed-Ulysses, 2023), which is the transpose above. Blocks may differ in length: `all_to_all_single` takes `input_split_sizes` and `output_split_sizes`. A rank's output sizes must be the lengths of what the others send it, which are its column in the table of lengths. Torch does not compare them across ranks (pytorch#32361, 2020). On gloo a size that is too large leaves a part of the output unwritten, and one that is too small aborts the rank's process.
#
# ## Roads not taken
#
# * **An all_to_all in two stages**, along the rows and then down the columns of a grid of r × c: (c−1) + (r−1) messages in place of n−1, and every number travels twice. It is the better road for small blocks on many ranks.
# * **`new_subgroups` and `split_group`** make groups of equal size, or split one that exists.
# * **Three dimensions and more**: data, tensor and pipeline parallelism each get one. The rules stay the same.
#
# ## What you can do now
#
# * ☑ make groups by hand, keep the three rules, and let a DeviceMesh do it;
# * ☑ tell a rank's number in the world from its number in a group, and name a root by either;
# * ☑ say what a group saves in bytes and in time;
# * ☑ predict whom a slow rank delays, in this step and in the next;
# * ☑ transpose a matrix that no rank holds, and say why all_to_all is the right call for it;
# * ☑ keep collectives of several groups in one order, and read the deadlock of two orders.
#
# **Next:** [lesson 09](09_trees_at_scale.ipynb) asks what to do when latency rules, and puts groups inside groups. The lesson before this one was [lesson 07](07_gpus.ipynb).
#
# ## Sources
#
# * PyTorch: [Getting Started with DeviceMesh](https://docs.pytorch.org/tutorials/recipes/distributed_device_mesh.html) (the recipe) · [Groups, `new_group`, `group_src`, `all_to_all_single`](https://docs.pytorch.org/docs/stable/distributed.html) · [DeviceMesh](https://docs.pytorch.org/docs/stable/distributed.html#devicemesh)
# * To read on: J. Austin and others, *How to Scale Your Model*, [Sharded Matrices and How to Multiply Them](https://jax-ml.github.io/scaling-book/sharding/), 2025
# * R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of Collective Communication Operations in MPICH*, International Journal of High Performance Computing Applications 19(1), 2005, [doi:10.1177/1094342005051521](https://doi.org/10.1177/1094342005051521)
# * Mistakes that others have met: [pytorch#130102](https://github.com/pytorch/pytorch/issues/130102), 2024 (members only) · [nvalchemi-toolkit#143](https://github.com/NVIDIA/nvalchemi-toolkit/pull/143), 2026 (the order of a set) · [torchrec#4149](https://github.com/meta-pytorch/torchrec/pull/4149), 2026 (two groups, two orders) · [pytorch#32361](https://github.com/pytorch/pytorch/pull/32361), 2020, and [pytorch#117486](https://github.com/pytorch/pytorch/issues/117486) (splits)
# * D. Lepikhin and others, *GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding*, 2020, [arXiv:2006.16668](https://arxiv.org/abs/2006.16668) · S. A. Jacobs and others, *DeepSpeed Ulysses*, 2023, [arXiv:2309.14509](https://arxiv.org/abs/2309.14509)
