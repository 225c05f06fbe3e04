"""What luck hides is found, always, and told apart; right programs are never accused."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from course_lib import Hazard, Mismatch, RankFailed
from course_sim import rank, simulate
from course_sim.ends import poison


def read_before_wait(dtype):
    x = torch.ones(3).to(dtype)
    if dist.get_rank() == 0:
        dist.send(x, 1)
        return None
    inbox = torch.zeros(3, dtype=dtype)
    work = dist.irecv(inbox, 0)
    result = inbox.clone()
    work.wait()
    return result


def read_and_passed_on():
    """Rank 1 sends on what it has not yet received; no result shows it."""
    rank, x = dist.get_rank(), torch.ones(2)
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        good, bad = torch.zeros(2), torch.zeros(2)
        first = dist.irecv(bad, 0)
        dist.send(bad + 1, 2)
        first.wait()
        del good
    else:
        dist.recv(x, 1)


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


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
def test_reading_before_wait_is_found(dtype):
    with pytest.raises(Hazard) as caught:
        simulate(read_before_wait, dtype, world_size=2)
    error = caught.value
    assert (error.kind, error.rank) == ("read before wait", 1)
    assert error.line.source == "work = dist.irecv(inbox, 0)"


def sent_on_too_soon():
    """Round a ring, with all messages under way at once."""
    rank, n = dist.get_rank(), dist.get_world_size()
    slots, left = [torch.full((1,), float(rank)) for _ in range(n)], (rank - 1) % n
    works = [
        work
        for k in range(n - 1)
        for work in (dist.isend(slots[k], (rank + 1) % n), dist.irecv(slots[k + 1], left))
    ]
    for work in works:
        work.wait()


@pytest.mark.parametrize("program", [read_and_passed_on, branched_on, sent_on_too_soon])
def test_reading_before_wait_is_found_wherever_it_shows(program):
    with pytest.raises(Hazard, match="reads a buffer"):
        simulate(program, world_size=2 if program is branched_on else 3)


def one_of_many(bad):
    rank, x = dist.get_rank(), torch.zeros(1)
    for k in range(9):
        if rank == 0:
            dist.send(torch.ones(1), 1)
        else:
            inbox = torch.zeros(1)
            if k == bad:
                work = dist.irecv(inbox, 0)  # the bad one
                x += inbox
            else:
                work = dist.irecv(inbox, 0)
            work.wait()
    return x


@pytest.mark.parametrize("bad", [0, 5])
def test_the_one_irecv_that_was_read_is_named(bad):
    with pytest.raises(Hazard) as caught:
        simulate(one_of_many, bad, world_size=2)
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


def sum_changed_on_its_way():
    x = torch.ones(3)
    work = dist.all_reduce(x, async_op=True)
    x.mul_(2)
    work.wait()


def two_messages_into_one_inbox():
    x, other = torch.ones(3), 1 - dist.get_rank()
    out = [dist.isend(torch.full((3,), k), other) for k in (1.0, 2.0)]
    works = [dist.irecv(x, other), dist.irecv(x, other)]
    for work in works + out:
        work.wait()


@pytest.mark.parametrize(
    "program",
    [
        written_around_torch,
        inbox_written,
        outgoing_is_inbox,
        sum_changed_on_its_way,
        two_messages_into_one_inbox,
    ],
)
def test_writing_before_wait_is_found(program):
    with pytest.raises(Hazard) as caught:
        simulate(program, world_size=2)
    assert caught.value.kind == "written before wait"
    said = str(caught.value)
    assert ("another message fills" in said) == (program is two_messages_into_one_inbox)
    if program is sum_changed_on_its_way:
        assert "writes to a buffer that all_reduce(SUM) is still filling." in said


def answer_into_what_was_sent(op="recv"):
    """The answer cannot come before the message has, and torch forbids it all the same."""
    x, rank = torch.ones(3), dist.get_rank()
    if rank:
        dist.recv(x, 0)
    else:
        work = dist.isend(x, 1)
    if op == "recv":
        dist.send(x + 1, 0) if rank else dist.recv(x, 1)  # writes
    elif op == "irecv":
        (dist.isend(x + 1, 0) if rank else dist.irecv(x, 1)).wait()  # writes
    elif op == "broadcast":
        dist.broadcast(x.mul_(2) if rank else x, 1)  # writes
    else:
        dist.all_reduce(x)  # writes
    if not rank:
        work.wait()


@pytest.mark.parametrize("op", ["recv", "irecv", "broadcast", "all_reduce"])
def test_a_call_that_fills_what_is_being_sent_is_the_line_that_is_named(op):
    with pytest.raises(Hazard, match="torch forbids to change a tensor between isend") as caught:
        simulate(answer_into_what_was_sent, op, world_size=2)
    error = caught.value
    assert error.kind == "written before wait" and error.line.source.endswith("# writes")
    assert "dist.isend(x, 1)" in str(error)


def inbox_without_memory():
    x, other = torch.ones(300), 1 - dist.get_rank()
    outgoing = dist.isend(torch.ones(300), other)
    incoming = dist.irecv(x, other)
    x.data = torch.ones(1)
    incoming.wait()
    outgoing.wait()


def test_a_buffer_that_is_gone_is_not_written_to():
    with pytest.raises((Hazard, RankFailed)):
        simulate(inbox_without_memory, world_size=2)


def filled_list(op, out):
    rank, x = dist.get_rank(), torch.full((2,), float(dist.get_rank()))
    if op == "all_gather":
        dist.all_gather(out, x)
    elif op == "gather":
        dist.gather(x, None if rank else out)
    elif op == "all_to_all":
        dist.all_to_all(out, [x] * len(out))
    elif op == "all_gather_coalesced":
        dist.all_gather_coalesced([[t] for t in out], [x])
    else:
        dist.all_reduce_coalesced(out)
    return [t.tolist() for t in out]


def one_tensor():
    return [torch.zeros(2)] * 3


def one_for_two_of_three():
    return [torch.zeros(2)] + [torch.zeros(2)] * 2


def views_that_overlap():
    return [torch.zeros(4)[k : k + 2] for k in range(1)] + list(torch.zeros(3).unfold(0, 2, 1))


def every_other_that_overlap():
    base = torch.zeros(6)
    return [base[0:4:2], base[1:5:2], base[2:6:2]]


def rows_of_one():
    return list(torch.zeros(3, 2))


def columns_of_one():
    return list(torch.zeros(2, 3).t())


FILLING = ["all_gather", "gather", "all_to_all", "all_gather_coalesced", "all_reduce_coalesced"]


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("op", FILLING)
def test_a_list_of_outputs_that_share_memory_is_refused(op, backend):
    for make, what in (
        (one_tensor, "one tensor 3 times"),
        (views_that_overlap, "tensors that share memory"),
        (every_other_that_overlap, "tensors that share memory"),
    ):
        with pytest.raises(Mismatch, match=f"rank 0 lets {op} fill {what}") as caught:
            simulate(
                lambda op, make: filled_list(op, make()), op, make, world_size=3, backend=backend
            )
        assert caught.value.what == "outputs" and "filled_list" in caught.value.lines[0].function
        assert ("for _ in range(n)]" in str(caught.value)) == (make is one_tensor)
    if op == "all_reduce_coalesced":  # which reads what it fills
        with pytest.raises(Mismatch, match="fill one tensor 2 times"):
            simulate(lambda: filled_list(op, one_for_two_of_three()), world_size=3, backend=backend)
    for make in (rows_of_one, columns_of_one):
        if make is rows_of_one or op != "all_to_all":  # gloo's all_to_all wants dense ones
            simulate(
                lambda op, make: filled_list(op, make()), op, make, world_size=3, backend=backend
            )


def both_send():
    x, other = torch.ones(1), 1 - dist.get_rank()
    dist.send(x, other)
    dist.recv(x, other)


# ---- never accused ----------------------------------------------------------------------


def fresh_randomness():
    """Not the same twice, and nobody's fault."""
    import uuid

    x = torch.zeros(1)
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), 1)
    else:
        dist.irecv(x, 0).wait()
    return str(uuid.uuid4())


def two_inboxes_in_one_tensor():
    rank, both = dist.get_rank(), torch.zeros(2, 3)
    if rank == 0:
        works = [dist.irecv(both[0], 1), dist.irecv(both[1], 2)]
    else:
        works = [dist.isend(torch.full((3,), float(rank)), 0)]
    for work in works:
        work.wait()
    return both


def futures_instead_of_wait():
    x = torch.ones(2)
    return dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] * 2).wait()


def empty_messages():
    x = torch.zeros(0)
    other = 1 - dist.get_rank()
    work = dist.isend(x, other)
    dist.irecv(torch.zeros(0), other).wait()
    work.wait()


def nan_on_its_way():
    x = torch.full((2,), float("nan"))
    other = 1 - dist.get_rank()
    work = dist.isend(x, other)
    inbox = torch.zeros(2)
    dist.irecv(inbox, other).wait()
    work.wait()
    return inbox


@pytest.mark.parametrize(
    ("program", "n"),
    [
        (fresh_randomness, 2),
        (two_inboxes_in_one_tensor, 3),
        (futures_instead_of_wait, 2),
        (empty_messages, 2),
        (nan_on_its_way, 2),
    ],
)
def test_right_programs_are_not_accused(program, n):
    simulate(program, world_size=n)


def test_what_stands_still_where_sends_wait_comes_through_where_they_are_buffered():
    simulate(both_send, world_size=2, buffered=True)


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


def in_lists(given, expected):
    rank = dist.get_rank()
    out = [torch.empty(many) for many in expected[rank]]
    dist.all_to_all(out, [torch.full((many,), float(rank)) for many in given[rank]])
    return torch.cat(out).tolist()


def scattered_sums(given, expected):
    rank = dist.get_rank()
    out = torch.empty(expected[rank][0])
    dist.reduce_scatter(out, [torch.ones(many) for many in given[rank]])


def gathered(given, expected):
    rank = dist.get_rank()
    dist.all_gather([torch.empty(many) for many in expected[rank]], torch.ones(given[rank][0]))


GIVEN = [[1, 2, 3], [4, 0, 1], [2, 2, 5]]
EXPECTED = [list(column) for column in zip(*GIVEN, strict=True)]


@pytest.mark.parametrize(
    ("program", "backend"), [(in_blocks, "gloo"), (in_blocks, "nccl"), (in_lists, "nccl")]
)
def test_each_pair_may_have_a_size_of_its_own(program, backend):
    run = simulate(program, GIVEN, EXPECTED, world_size=3, backend=backend)
    assert run.results[0] == [0.0] + [1.0] * 4 + [2.0] * 2
    assert [e.in_splits for e in run.trace.by_rank] == [tuple(row) for row in GIVEN]
    assert [e.out_splits for e in run.trace.by_rank] == [tuple(row) for row in EXPECTED]


@pytest.mark.parametrize("pair", [(0, 1), (1, 2), (2, 0), (2, 2)])
@pytest.mark.parametrize(
    ("program", "backend"), [(in_blocks, "gloo"), (in_blocks, "nccl"), (in_lists, "nccl")]
)
def test_each_pair_that_does_not_fit_is_told(program, backend, pair):
    """Also one in which the first to call has no part."""
    giver, taker = pair
    expected = [list(row) for row in EXPECTED]
    expected[taker][giver] += 7
    with pytest.raises(Mismatch) as caught:
        simulate(program, GIVEN, expected, world_size=3, backend=backend)
    many, to = GIVEN[giver][taker], f"rank {taker}, which" if giver != taker else "itself and"
    elements = "1 element" if many == 1 else f"{many} elements"
    assert f"rank {giver} sends {elements} to {to} expects {many + 7}." in str(caught.value)
    assert caught.value.what == "splits"


@pytest.mark.parametrize(
    ("program", "given", "expected", "backend", "told"),
    [
        (scattered_sums, [[1, 2]] * 2, [[1], [3]], "gloo", "to rank 1, which expects 3"),
        (scattered_sums, [[1, 2]] * 2, [[2], [2]], "gloo", "rank 0 sends 1 element to itself and"),
        (gathered, [[1], [3]], [[1, 2]] * 2, "nccl", "sends 3 elements to"),
    ],
)
def test_lists_of_blocks_that_do_not_fit_are_told(program, given, expected, backend, told):
    with pytest.raises(Mismatch, match=told):
        simulate(program, given, expected, world_size=2, backend=backend)


def test_blocks_of_one_length_need_no_sizes():
    run = simulate(gathered, [[2]] * 2, [[2, 2]] * 2, world_size=2)
    assert [e.in_splits for e in run.trace.events] == [None, None]
