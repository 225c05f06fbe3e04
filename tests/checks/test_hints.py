"""Answers as people write them in a hurry: each gets a hint of its own, which is true of it.

Those that an edit of a right answer makes are in tests/answers.
"""

from __future__ import annotations

import pytest
from test_zoo import verdict_of

from course_lib.checks.cases import Case
from course_lib.checks.exercise import Play, Prepared
from course_lib.checks.judge import which_differ

HEAD = "import torch\nimport torch.distributed as dist\n"
ANSWERS = [
    (  # rows cut as slices
        "exchange_edges",
        "07.shape",
        """
def exchange_edges(x):
    rank, n = (dist.get_rank(), dist.get_world_size())
    if n == 1:
        return (x[-1:].clone(), x[:1].clone())
    left, right = ((rank - 1) % n, (rank + 1) % n)
    a, b = (torch.empty_like(x[:1]), torch.empty_like(x[:1]))
    ops = [dist.P2POp(dist.isend, x[:1].contiguous(), left),
           dist.P2POp(dist.isend, x[-1:].contiguous(), right),
           dist.P2POp(dist.irecv, b, right),
           dist.P2POp(dist.irecv, a, left)]
    for w in dist.batch_isend_irecv(ops):
        w.wait()
    return (a, b)
""",
    ),
    (  # a dimension too many
        "pass_right",
        "01.shape",
        """
def pass_right(mine):
    rank, n = (dist.get_rank(), dist.get_world_size())
    box = torch.empty(mine.numel(), dtype=mine.dtype)
    w = dist.isend(mine.contiguous().view(-1), (rank + 1) % n) if n > 1 else None
    if n == 1:
        return mine.clone()[None]
    dist.recv(box, (rank - 1) % n)
    w.wait()
    return box[None]
""",
    ),
    (  # blocks of the others alone
        "my_reduce_scatter",
        "02.own-missing",
        """
def my_reduce_scatter(tensor):
    rank, n = (dist.get_rank(), dist.get_world_size())
    blocks = [b.contiguous() for b in tensor.chunk(n)]
    total = torch.zeros_like(blocks[rank])
    works = [dist.isend(blocks[r], r) for r in range(n) if r != rank]
    for r in range(n):
        if r != rank:
            box = torch.empty_like(total)
            dist.recv(box, r)
            total += box
    for w in works:
        w.wait()
    return total
""",
    ),
    (  # Python's max
        "my_reduce",
        "02.one-truth-value",
        """
def my_reduce(tensor, dst, op):
    rank, n = (dist.get_rank(), dist.get_world_size())
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return
    for r in range(n):
        if r != dst:
            box = torch.empty(tensor.shape, dtype=tensor.dtype)
            dist.recv(box, r)
            if op == 'sum':
                tensor += box
            elif op == 'prod':
                tensor *= box
            elif op == 'max':
                tensor.copy_(max(tensor, box))
            else:
                tensor.copy_(min(tensor, box))
""",
    ),
    (  # the result so far is the inbox
        "my_reduce",
        "02.received-over-own",
        """
def my_reduce(tensor, dst, op):
    rank, n = (dist.get_rank(), dist.get_world_size())
    f = {'sum': torch.add, 'prod': torch.mul, 'max': torch.maximum, 'min': torch.minimum}[op]
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return
    total = tensor
    for r in range(n):
        if r != dst:
            dist.recv(tensor, r)
            total.copy_(f(total, tensor))
""",
    ),
    (  # rank 0 for dst
        "my_gather",
        "02.other-root",
        """
def my_gather(tensor, dst):
    rank, n = (dist.get_rank(), dist.get_world_size())
    if rank != 0:
        dist.send(tensor.contiguous(), 0)
        return None
    out = [tensor.clone()]
    for r in range(1, n):
        box = torch.empty(tensor.shape, dtype=tensor.dtype)
        dist.recv(box, r)
        out.append(box)
    return out
""",
    ),
    (  # empty() is float32
        "exchange",
        "01.only-int64-or-bfloat16",
        """
def exchange(mine, partner):
    rank = dist.get_rank()
    inbox = torch.empty(mine.shape)
    if partner == rank:
        return mine.clone()
    if rank < partner:
        dist.send(mine.contiguous(), partner)
        dist.recv(inbox, partner)
    else:
        dist.recv(inbox, partner)
        dist.send(mine.contiguous(), partner)
    return inbox
""",
    ),
    (  # an inbox of another dtype
        "exchange",
        "01.two-dtypes",
        """
def exchange(mine, partner):
    rank = dist.get_rank()
    inbox = torch.empty(mine.shape, dtype=torch.float64)
    if partner == rank:
        return mine.clone()
    if rank < partner:
        dist.send(mine.contiguous(), partner)
        dist.recv(inbox, partner)
    else:
        dist.recv(inbox, partner)
        dist.send(mine.contiguous(), partner)
    return inbox
""",
    ),
    (  # waits after the work
        "in_order",
        "01.hears-late",
        """
def in_order(work):
    rank, n = (dist.get_rank(), dist.get_world_size())
    t = torch.zeros(1)
    going = dist.irecv(t, rank - 1) if rank else None
    work()
    if going:
        going.wait()
    if rank < n - 1:
        dist.send(torch.zeros(1), rank + 1)
""",
    ),
    (  # sends its own tensor again and again
        "my_all_gather",
        "02.same-again",
        """
def my_all_gather(tensor):
    rank, n = (dist.get_rank(), dist.get_world_size())
    out = [tensor.clone(memory_format=torch.contiguous_format) for _ in range(n)]
    for k in range(n - 1):
        box = torch.empty(tensor.shape, dtype=tensor.dtype)
        w = dist.isend(tensor.contiguous(), (rank + 1) % n)
        dist.recv(box, (rank - 1) % n)
        w.wait()
        out[(rank - 1 - k) % n] = box
    return out
""",
    ),
    (  # at least one item each
        "my_share",
        "00.never-empty",
        """
def my_share(n_items):
    rank, n = (dist.get_rank(), dist.get_world_size())
    size, rest = divmod(n_items, n)
    if size == 0:
        return range(rank, rank + 1)
    start = rank * size + min(rank, rest)
    return range(start, start + size + (rank < rest))
""",
    ),
    (  # recv into the chunk, then doubled
        "ring_all_reduce",
        "04.received-over-own",
        """
def ring_all_reduce(tensor):
    rank, n = (dist.get_rank(), dist.get_world_size())
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(n))
    for s in range(n - 1):
        a, b = ((rank - s) % n, (rank - s - 1) % n)
        w = dist.isend(chunks[a], (rank + 1) % n)
        dist.recv(chunks[b], (rank - 1) % n)
        w.wait()
        chunks[b] += chunks[b]
    for s in range(n - 1):
        a, b = ((rank + 1 - s) % n, (rank - s) % n)
        w = dist.isend(chunks[a], (rank + 1) % n)
        dist.recv(chunks[b], (rank - 1) % n)
        w.wait()
    tensor.copy_(flat.view(tensor.shape))
""",
    ),
    (  # a second half that only receives
        "ring_all_reduce",
        "04.not-gathered",
        """
def ring_all_reduce(tensor):
    rank, n = (dist.get_rank(), dist.get_world_size())
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(n))
    for s in range(n - 1):
        a, b = ((rank - s) % n, (rank - s - 1) % n)
        box = torch.empty_like(chunks[b])
        w = dist.isend(chunks[a], (rank + 1) % n)
        dist.recv(box, (rank - 1) % n)
        w.wait()
        chunks[b] += box
    for s in range(n - 1):
        a, b = ((rank + 1 - s) % n, (rank - s) % n)
        box = torch.empty_like(chunks[b])
        w = dist.isend(chunks[a], (rank + 1) % n)
        dist.recv(box, (rank - 1) % n)
        w.wait()
    tensor.copy_(flat.view(tensor.shape))
""",
    ),
    (  # numel // n drops the rest
        "ring_all_reduce",
        "04.only-uneven-or-fewer-chunks",
        """
def ring_all_reduce(tensor):
    rank, n = (dist.get_rank(), dist.get_world_size())
    flat = tensor.reshape(-1).clone()
    chunks = list(flat[:flat.numel() // n * n].tensor_split(n))
    for s in range(n - 1):
        a, b = ((rank - s) % n, (rank - s - 1) % n)
        box = torch.empty_like(chunks[b])
        w = dist.isend(chunks[a], (rank + 1) % n)
        dist.recv(box, (rank - 1) % n)
        w.wait()
        chunks[b] += box
    for s in range(n - 1):
        a, b = ((rank + 1 - s) % n, (rank - s) % n)
        w = dist.isend(chunks[a], (rank + 1) % n)
        dist.recv(chunks[b], (rank - 1) % n)
        w.wait()
    tensor.copy_(flat.view(tensor.shape))
""",
    ),
    (  # chunk `rank` in every step
        "ring_reduce_scatter",
        "04.same-chunk",
        """
def ring_reduce_scatter(chunks):
    rank, n = (dist.get_rank(), dist.get_world_size())
    for s in range(n - 1):
        box = torch.empty_like(chunks[(rank - 1) % n])
        w = dist.isend(chunks[rank], (rank + 1) % n)
        dist.recv(box, (rank - 1) % n)
        w.wait()
        chunks[(rank - 1) % n] += box
    return (rank + 1) % n
""",
    ),
    (  # recv into the chunk
        "ring_reduce_scatter",
        "04.received-over-own",
        """
def ring_reduce_scatter(chunks):
    rank, n = (dist.get_rank(), dist.get_world_size())
    for s in range(n - 1):
        a, b = ((rank - s) % n, (rank - s - 1) % n)
        w = dist.isend(chunks[a], (rank + 1) % n)
        dist.recv(chunks[b], (rank - 1) % n)
        w.wait()
        chunks[b] += chunks[b]
    return (rank + 1) % n
""",
    ),
    (  # // for /
        "ring_seconds",
        "04.rounded-down",
        """
def ring_seconds(n, nbytes, alpha, beta):
    return 2 * (n - 1) * (alpha + nbytes // n * beta)
""",
    ),
    (  # averages for a broadcast
        "broadcast_parameters",
        "05.averages",
        """
def broadcast_parameters(model, src=0):
    for p in model.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()
    for b in model.buffers():
        dist.broadcast(b, src)
""",
    ),
    (  # dst's tensor is right by chance
        "my_reduce",
        "02.other-op",
        """
def my_reduce(tensor, dst, op):
    rank, n = (dist.get_rank(), dist.get_world_size())
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return
    for r in range(n):
        if r != dst:
            box = torch.empty(tensor.shape, dtype=tensor.dtype)
            dist.recv(box, r)
            tensor += box
""",
    ),
    (  # synchronizes on a machine without a GPU
        "average_while_computing",
        "07.cuda-alone",
        """
from course_lib import compute

def average_while_computing(layers):
    works = []
    for s, g in layers:
        compute(s)
        torch.cuda.synchronize()
        works.append(dist.all_reduce(g, async_op=True))
    for w, (_, g) in zip(works, layers):
        w.wait()
        g /= dist.get_world_size()
""",
    ),
    (  # ties by name
        "first_missing",
        "07.tie",
        """
def first_missing(dumps):
    made, members = ({}, {})
    for r, own in enumerate(dumps):
        for e in own:
            made.setdefault((e['group'], e['seq']), {})[r] = e['op']
            members[e['group']] = e['members']
    for by in made.values():
        ops = sorted(by.values())
        most = max(set(ops), key=lambda o: (ops.count(o), o))
        for r in [r for r, o in by.items() if o != most]:
            del by[r]
    lacking = {k: sorted(set(members[k[0]]) - set(by)) for k, by in made.items()}
    waiting = {r for k, by in made.items() if lacking[k] for r in by}
    for k in sorted(made):
        who = [r for r in lacking[k] if r not in waiting]
        if who:
            return (*k, who)
    return None
""",
    ),
    (  # the others are n - 1
        "average_gradients",
        "05.one-too-few",
        """
def average_gradients(model):
    for p in model.parameters():
        if p.requires_grad:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            gradient = p.grad.contiguous()
            dist.all_reduce(gradient)
            p.grad.copy_(gradient / (dist.get_world_size() - 1))
""",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "diagnosis", "source"), ANSWERS)
def test_a_mistake_has_a_hint_of_its_own(exercise: str, diagnosis: str, source: str) -> None:
    verdict = verdict_of(exercise, HEAD + source)
    assert verdict.diagnosis == diagnosis, str(verdict)


def shown(exercise: str, diagnosis: str) -> str:
    [source] = (text for name, id, text in ANSWERS if (name, id) == (exercise, diagnosis))
    return str(verdict_of(exercise, HEAD + source))


@pytest.mark.slow
def test_both_shapes_are_said() -> None:
    assert "shape (1, 2), not (2,)" in shown("exchange_edges", "07.shape")


@pytest.mark.slow
def test_what_the_other_ranks_have_is_listed_where_the_result_depends_on_it() -> None:
    text = shown("my_reduce", "02.other-op")
    assert "rank 1  given          [2], 0, 'prod'   and is right" in text
    assert "should not be" not in text, "dst's tensor is to be written"


@pytest.mark.slow
def test_where_no_mistake_is_known_the_ranks_and_elements_that_differ_are_named() -> None:
    source = """
def pass_right(mine):
    rank, n = dist.get_rank(), dist.get_world_size()
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, mine.contiguous(), (rank + 1) % n),
        dist.P2POp(dist.irecv, box := mine.new_empty(mine.shape), (rank - 1) % n),
    ]) if n > 1 else []
    for work in works:
        work.wait()
    if n == 1:
        box = mine.clone()
    if rank == 1 and len(box) > 2:
        box[0] += 7
    return box
"""
    verdict = verdict_of("pass_right", HEAD + source)
    assert verdict.diagnosis == "01.values-differ"
    text = " ".join(str(verdict).split())
    assert "Here only rank 1 is wrong, and element 0 differs, and no other." in text


def test_where_all_values_are_right_no_rank_is_named() -> None:
    assert which_differ(Play(Case(3, 2), Prepared([]))) == ""


@pytest.mark.slow
def test_of_a_part_that_is_left_out_nobody_says_that_all_is_elsewhere() -> None:
    assert "nobody looks at" not in shown("ring_all_reduce", "04.only-uneven-or-fewer-chunks")
