"""Random valid programs, as data, and the function that every rank runs to execute one.

Valid by construction: blocking messages go one after another in one global order, so a rank that
follows its own part of that order can never wait in a circle; everything else is posted before
anything is waited for. Values are small integers, so that sums do not depend on their order.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
import torch.distributed as dist

MOVED = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.bool)
ADDED = (torch.float32, torch.float64, torch.int32, torch.int64)
# Dense tensors: gloo moves the memory of some as it lies, and elements of others by their index.
AS_IT_LIES = ("all_reduce", "broadcast", "reduce", "scatter")
AS_IT_READS = ("all_gather", "gather", "all_to_all")
SCATTERS = ("reduce_scatter", "reduce_scatter_single")
FLAT = ("all_gather_single", "all_to_all_single", "barrier")
COLLECTIVES = (*AS_IT_LIES, *AS_IT_READS, *SCATTERS, *FLAT)


def make_program(seed: int) -> dict:
    """World size, groups and steps of one program."""
    rng = random.Random(seed)
    n = rng.randint(2, 4)
    groups = [sorted(rng.sample(range(n), rng.randint(2, n))) for _ in range(rng.randint(0, 2))]
    steps = [_step(rng, n, [list(range(n)), *groups]) for _ in range(rng.randint(1, 6))]
    return {"n": n, "groups": groups, "split": rng.random() < 0.3, "steps": steps}


def _step(rng: random.Random, n: int, groups: list[list[int]]) -> dict:
    index = rng.randrange(len(groups))
    ranks = groups[index]
    step = {
        "group": index,
        "ranks": ranks,
        "seed": rng.randrange(1000),
        "length": rng.choice([0, 1, 3, 8]),
    }
    if rng.random() < 0.5:
        pairs = [rng.sample(ranks, 2) for _ in range(rng.randint(1, 5))]
        messages = [(a, b, rng.randrange(3), rng.choice([1, 2, 5])) for a, b in pairs]
        how = rng.choice(["ordered", "posted", "batch", "any"])
        return step | {"op": how, "messages": messages, "dtype": rng.choice(MOVED)}
    op = rng.choice(COLLECTIVES)
    reduces = op in ("all_reduce", "reduce", *SCATTERS)
    dtype = rng.choice(ADDED if reduces else MOVED)
    ops = ["SUM", "PRODUCT", "MIN", "MAX"]
    if dtype.is_floating_point:
        ops += ["AVG"] if len(ranks) in (2, 4) else []
    else:
        ops += ["BAND", "BOR", "BXOR"]
    return step | {
        "op": op,
        "dtype": dtype,
        "root": rng.choice(ranks),
        "async": rng.random() < 0.4,
        "reduce_op": rng.choice(ops),
        "transposed": rng.choice([[], ranks, ranks[:1]]),
    }


def execute(program: dict, before_step: Callable[[], object] = lambda: None) -> list:
    """Run one program on the calling rank; returns everything that it received."""
    rank = dist.get_rank()
    groups = [None, *(dist.new_group(ranks) for ranks in program["groups"])]
    seen: list = []
    if program["split"]:
        half = dist.split_group(
            split_ranks=[list(range(0, program["n"], 2)), list(range(1, program["n"], 2))]
        )
        total = torch.tensor([rank + 1])
        dist.all_reduce(total, group=half)
        seen.append(total)
    for number, step in enumerate(program["steps"]):
        if rank in step["ranks"]:
            before_step()
            run = _messages if "messages" in step else _collective
            seen.append(run(step, number, rank, groups[step["group"]]))
    return seen


def execute_all(programs: list[dict]) -> list:
    """Several programs of one world size, one after another."""
    return [execute(program) for program in programs]


def _values(seed: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 3 if dtype != torch.bool else 2, (length,), generator=generator).to(
        dtype
    )


def _laid(tensor: torch.Tensor, transposed: bool) -> torch.Tensor:
    """A tensor of even length as a matrix of two rows; it may lie column by column."""
    if tensor.numel() % 2:
        return tensor
    rows = tensor.numel() // 2
    return tensor.reshape(rows, 2).t() if transposed else tensor.reshape(2, rows)


def _messages(step: dict, number: int, rank: int, group) -> list:
    got, works, batch = [], [], []
    if step["op"] == "any":  # everyone sends once to the smallest rank, which takes what comes
        root = step["ranks"][0]
        if rank != root:
            dist.send(torch.tensor([rank]), root, group=group, tag=100 + number)
            return []
        for _ in step["ranks"][1:]:
            inbox = torch.zeros(1, dtype=torch.int64)
            source = dist.recv(inbox, group=group, tag=100 + number)
            got.append((source, inbox))
        return sorted((s, t.tolist()) for s, t in got)
    for k, (src, dst, tag, length) in enumerate(step["messages"]):
        outgoing = _values(step["seed"] + 10 * number + k, length, step["dtype"])
        inbox = torch.zeros(length, dtype=step["dtype"])
        if rank == src:
            if step["op"] == "ordered":
                dist.send(outgoing, dst, group=group, tag=tag)
            elif step["op"] == "posted":
                works.append(dist.isend(outgoing, dst, group=group, tag=tag))
            else:
                batch.append(dist.P2POp(dist.isend, outgoing, dst, group, tag))
        if rank == dst:
            got.append(inbox)
            if step["op"] == "ordered":
                dist.recv(inbox, src, group=group, tag=tag)
            elif step["op"] == "posted":
                works.append(dist.irecv(inbox, src, group=group, tag=tag))
            else:
                batch.append(dist.P2POp(dist.irecv, inbox, src, group, tag))
    works += dist.batch_isend_irecv(batch) if batch else []
    for work in works:
        work.wait()
    return got


def _collective(step: dict, number: int, rank: int, group) -> list:
    n, me, root = len(step["ranks"]), step["ranks"].index(rank), step["root"]
    length, dtype, op = step["length"], step["dtype"], step["op"]
    reduce_op = getattr(dist.ReduceOp, step["reduce_op"])
    mine = _values(step["seed"] + 100 * rank + number, length, dtype)
    many = [_values(step["seed"] + 100 * rank + number + 7 * k, length, dtype) for k in range(n)]
    empty = [torch.zeros(length, dtype=dtype) for _ in range(n)]
    one = torch.zeros(length, dtype=dtype)
    if op in AS_IT_LIES or (op in AS_IT_READS and len(step["transposed"]) != 1):
        turned = rank in step["transposed"]
        mine, one = _laid(mine, turned), _laid(one, turned)
        many, empty = [_laid(t, turned) for t in many], [_laid(t, False) for t in empty]
    more = {"group": group, "async_op": step["async"]}
    result: list = []
    work = None
    if op == "all_reduce":
        work, result = dist.all_reduce(mine, reduce_op, **more), [mine]
    elif op == "broadcast":
        work, result = dist.broadcast(mine, root, **more), [mine]
    elif op == "reduce":  # what gloo leaves in the others' tensors is nobody's business
        work, result = dist.reduce(mine, root, reduce_op, **more), [mine] if rank == root else []
    elif op == "all_gather":
        work, result = dist.all_gather(empty, mine, **more), empty
    elif op == "all_gather_single":
        flat = torch.zeros(n * length, dtype=dtype)
        work, result = dist.all_gather_single(flat, mine, **more), [flat]
    elif op == "gather":
        work, result = dist.gather(mine, empty if rank == root else None, root, **more), empty
    elif op == "scatter":
        work, result = dist.scatter(one, many if rank == root else None, root, **more), [one]
    elif op == "reduce_scatter":
        work, result = dist.reduce_scatter(one, many, reduce_op, **more), [one]
    elif op == "reduce_scatter_single":
        work, result = dist.reduce_scatter_single(one, torch.cat(many), reduce_op, **more), [one]
    elif op == "all_to_all":
        work, result = dist.all_to_all(empty, many, **more), empty
    elif op == "all_to_all_single":  # rank r sends k + 1 elements to the k-th
        sizes = [k + 1 for k in range(n)]
        flat = torch.zeros(n * (me + 1), dtype=dtype)
        give = _values(step["seed"] + rank, sum(sizes), dtype)
        work = dist.all_to_all_single(flat, give, [me + 1] * n, sizes, **more)
        result = [flat]
    else:
        work = dist.barrier(group, step["async"])
    if work is not None:
        work.wait()
    return result
