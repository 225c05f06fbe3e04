"""What luck hides is found, always, and told apart; right programs are never accused."""

from __future__ import annotations

import uuid
from functools import partial

import pytest
import torch
import torch.distributed as dist

from course_lib import Hazard, Mismatch
from course_sim import rank, simulate
from course_sim.ends import poison


def branched_on():
    """What is read decides what is done."""
    rank, x = dist.get_rank(), torch.ones(1)
    if rank == 0:
        dist.send(x, 1)
        return 0
    inbox = torch.zeros(1)
    work = dist.irecv(inbox, 0)
    answer = 1 if inbox.item() > 0 else 2
    work.wait()
    return answer


def test_reading_before_wait_is_found_where_no_result_shows_it():
    with pytest.raises(Hazard, match="reads a buffer"):
        simulate(branched_on, world_size=2)


def one_of_many(bad, dtype=torch.float32):
    seen = []
    for k in range(9):
        inbox = torch.zeros(1, dtype=dtype)
        if dist.get_rank() == 0:
            dist.send(torch.ones_like(inbox), 1)
        elif k == bad:
            work = dist.irecv(inbox, 0)  # the bad one
            seen.append(inbox.clone())
            work.wait()
        else:
            dist.irecv(inbox, 0).wait()
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_the_one_irecv_that_was_read_is_named(dtype):
    with pytest.raises(Hazard) as caught:
        simulate(one_of_many, 5, dtype, world_size=2)
    assert (caught.value.kind, caught.value.rank) == ("read before wait", 1)
    assert "the bad one" in caught.value.line.source


def written_around_torch():
    """Through numpy, where no version counter sees it."""
    x = torch.ones(3)
    if dist.get_rank() == 0:
        work = dist.isend(x, 1)
        x.numpy()[0] = 5
        work.wait()
    else:
        dist.recv(x, 0)


def inbox_written():
    x = torch.ones(3)
    if dist.get_rank() == 0:
        dist.send(x, 1)
    else:
        work = dist.irecv(x, 0)
        x.zero_()
        work.wait()


def outgoing_is_inbox():
    x, other = torch.full((3,), float(dist.get_rank())), 1 - dist.get_rank()
    works = [dist.isend(x, other), dist.irecv(x, other)]
    for work in works:
        work.wait()
    return x


def two_messages_into_one_inbox():
    x, other = torch.ones(3), 1 - dist.get_rank()
    out = [dist.isend(torch.full((3,), k), other) for k in (1.0, 2.0)]
    works = [dist.irecv(x, other), dist.irecv(x, other)]
    for work in works + out:
        work.wait()


def test_two_messages_into_one_inbox_are_told_as_that():
    with pytest.raises(Hazard, match="another message fills the same tensor"):
        simulate(two_messages_into_one_inbox, world_size=2)


@pytest.mark.parametrize("program", [written_around_torch, inbox_written, outgoing_is_inbox])
def test_writing_before_wait_is_found(program):
    with pytest.raises(Hazard) as caught:
        simulate(program, world_size=2)
    assert caught.value.kind == "written before wait"


def answer_into_what_was_sent():
    """The answer cannot come before the message has, and torch forbids it all the same."""
    x, rank = torch.ones(3), dist.get_rank()
    if rank:
        dist.recv(x, 0)
        dist.send(x + 1, 0)
    else:
        work = dist.isend(x, 1)
        dist.recv(x, 1)  # writes
        work.wait()


def test_a_call_that_fills_what_is_being_sent_is_the_line_that_is_named():
    with pytest.raises(Hazard, match="torch forbids to change a tensor between isend") as caught:
        simulate(answer_into_what_was_sent, world_size=2)
    error = caught.value
    assert error.kind == "written before wait" and error.line.source.endswith("# writes")
    assert "dist.isend(x, 1)" in str(error)


def filled_list(op, make):
    rank, x, out = dist.get_rank(), torch.full((2,), float(dist.get_rank())), make()
    if op == "gather":
        dist.gather(x, None if rank else out)
    elif op == "all_gather_coalesced":
        dist.all_gather_coalesced([[t] for t in out], [x])
    else:
        dist.all_reduce_coalesced(out)


def one_tensor():
    return [torch.zeros(2)] * 3


def every_other_that_overlap():
    base = torch.zeros(6)
    return [base[0:4:2], base[1:5:2], base[2:6:2]]


def columns_of_one():
    return list(torch.zeros(2, 3).t())


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("op", ["gather", "all_gather_coalesced", "all_reduce_coalesced"])
def test_a_list_of_outputs_that_share_memory_is_refused(op, backend):
    play = partial(simulate, filled_list, op, world_size=3, backend=backend)
    for make, what in (
        (one_tensor, "one tensor 3 times"),
        (every_other_that_overlap, "tensors that share memory"),
    ):
        with pytest.raises(Mismatch, match=f"rank 0 lets {op} fill {what}") as caught:
            play(make)
        assert caught.value.what == "outputs" and "filled_list" in caught.value.lines[0].function
        assert ("for _ in range(n)]" in str(caught.value)) == (make is one_tensor)
    play(columns_of_one)


# ---- never accused ----------------------------------------------------------------------


def futures_instead_of_wait():
    x = torch.ones(2)
    return dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] * 2).wait()


def empty_messages():
    other = 1 - dist.get_rank()
    work = dist.isend(torch.zeros(0), other)
    dist.irecv(torch.zeros(0), other).wait()
    work.wait()


def fresh_randomness():
    """Not the same twice, and nobody's fault."""
    empty_messages()
    return str(uuid.uuid4())


def nan_on_its_way():
    x = torch.full((2,), float("nan"))
    other = 1 - dist.get_rank()
    work = dist.isend(x, other)
    inbox = torch.zeros(2)
    dist.irecv(inbox, other).wait()
    work.wait()
    return inbox


@pytest.mark.parametrize(
    "program", [fresh_randomness, futures_instead_of_wait, empty_messages, nan_on_its_way]
)
def test_right_programs_are_not_accused(program):
    simulate(program, world_size=2)


def test_what_is_not_searched_is_said(monkeypatch):
    monkeypatch.setattr(poison, "MOST", 0)
    sim = simulate(empty_messages, world_size=2)
    assert "early reads are not searched for" in sim.trace.note


def objects_behind_an_irecv():
    """Object collectives send unwritten memory behind the pickle: anything may lie there."""
    rank, out = dist.get_rank(), [None, None]
    for _ in range(5):
        inbox, x = torch.zeros(300), torch.ones(300)
        work = dist.isend(x, 1 - rank)
        dist.irecv(inbox, 1 - rank).wait()
        work.wait()
        del inbox
        dist.all_gather_object(out, "x" * (1000 * rank))
        things = ["y" * 900 * (1 + rank)]
        dist.broadcast_object_list(things, 0)
    return len(out[1]), things


def test_what_lies_behind_an_object_is_not_compared(monkeypatch):
    """Nor what a broadcast finds in the buffers that it is about to fill."""
    compared = []
    monkeypatch.setattr(rank, "hash", compared.append, raising=False)
    simulate(objects_behind_an_irecv, world_size=2)
    assert set(compared) == {torch.ones(300).numpy().tobytes()}


# ---- sizes of each pair's own -------------------------------------------------------------------


def in_blocks(given, expected):
    """``given[r][k]`` elements go from rank r to rank k, which expects ``expected[k][r]``."""
    rank = dist.get_rank()
    out = torch.empty(sum(expected[rank]))
    x = torch.full((sum(given[rank]),), float(rank))
    dist.all_to_all_single(out, x, expected[rank], given[rank])
    return out.tolist()


GIVEN = [[1, 2, 3], [4, 0, 1], [2, 2, 5]]
EXPECTED = [list(column) for column in zip(*GIVEN, strict=True)]


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_each_pair_may_have_a_size_of_its_own(backend):
    run = simulate(in_blocks, GIVEN, EXPECTED, world_size=3, backend=backend)
    assert run.results[0] == [0.0] + [1.0] * 4 + [2.0] * 2
    assert [e.in_splits for e in run.trace.by_rank] == [tuple(row) for row in GIVEN]
    assert [e.out_splits for e in run.trace.by_rank] == [tuple(row) for row in EXPECTED]


@pytest.mark.parametrize("pair", [(1, 2), (2, 2)])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_each_pair_that_does_not_fit_is_told(backend, pair):
    """Also one in which the first to call has no part."""
    giver, taker = pair
    expected = [list(row) for row in EXPECTED]
    expected[taker][giver] += 7
    with pytest.raises(Mismatch) as caught:
        simulate(in_blocks, GIVEN, expected, world_size=3, backend=backend)
    many, to = GIVEN[giver][taker], f"rank {taker}, which" if giver != taker else "itself and"
    elements = "1 element" if many == 1 else f"{many} elements"
    assert f"rank {giver} sends {elements} to {to} expects {many + 7}." in str(caught.value)
    assert caught.value.what == "splits"
