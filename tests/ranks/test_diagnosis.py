"""Every way in which a world can go wrong, provoked for real, and what is said of it."""

import ctypes
import os
import signal
import sys
import time
from functools import partial

import pytest
import torch
import torch.distributed as dist

from course_lib import (
    CourseError,
    Deadlock,
    Hang,
    Hazard,
    Mismatch,
    RankDied,
    RankFailed,
    expect,
    run,
    simulate,
)
from course_lib.ranks import deadlock


@pytest.fixture(scope="module", autouse=True)
def started():
    """The first run of a process takes longest, longer than some timeouts here."""
    run(lambda: None, world_size=2)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """How long ranks are stuck decides when it is told, not what is said of it."""
    monkeypatch.setattr(deadlock, "DEADLOCK_SECONDS", 0.2)


def told(kind, fn, world_size=2, **options):
    """Run something that must fail with this class; returns the error and how long it took."""
    start = time.perf_counter()
    with pytest.raises(CourseError) as caught:
        run(fn, world_size=world_size, **options)
    caught.value.seconds = time.perf_counter() - start
    assert type(caught.value) is kind, str(caught.value)
    return caught.value


# ---- a rank raises or dies --------------------------------------------------------------------


def test_an_exception_names_the_rank_and_the_line():
    def fail():
        if dist.get_rank() == 2:
            raise ValueError("no such thing")
        dist.barrier()

    error = told(RankFailed, fail, 4)
    assert (error.rank, error.kind, error.consequences) == (2, "ValueError", ())
    first, second = str(error).splitlines()
    assert first == "rank 2 raised ValueError: no such thing"
    assert second.endswith('raise ValueError("no such thing")')
    assert isinstance(error.__cause__, ValueError)
    assert error.seconds < 10


def test_the_first_failure_in_time_is_the_cause():
    def fail():
        if dist.get_rank() == 1:
            os._exit(3)
        dist.barrier()  # falls over: "Connection closed by peer"

    error = told(RankDied, fail, 3)
    assert (error.rank, error.exit_code) == (1, 3)
    assert "rank 1 left early: its process ended with exit code 3." in str(error)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_is_named_with_the_last_thing_the_rank_did(number):
    def die(number):
        dist.barrier()
        if dist.get_rank() == 1:
            os.kill(os.getpid(), number)
        dist.barrier()

    error = told(RankDied, lambda: die(number))
    assert (error.rank, error.exit_code) == (1, -number)
    assert signal.Signals(number).name in str(error)
    assert "os.kill(os.getpid(), number)" in str(error) or "barrier()" in str(error)


def test_a_segmentation_fault_shows_its_line():
    def crash():
        ctypes.string_at(0)

    error = told(RankDied, crash, 1)
    assert "SIGSEGV" in str(error)
    assert "ctypes.string_at(0)" in str(error)


def test_exit_code_0_is_no_success():
    def leave():
        if dist.get_rank() == 0:
            os._exit(0)
        dist.barrier()

    error = told(RankDied, leave)
    assert (error.rank, error.exit_code) == (0, 0)
    assert "left early" in str(error)


def test_sys_exit_is_told_with_its_line():
    def leave():
        if dist.get_rank() == 1:
            sys.exit(0)
        dist.barrier()

    error = told(RankDied, leave)
    assert error.rank == 1
    assert "sys.exit(0)" in str(error)


def test_what_was_printed_before_a_failure_is_shown(capsys):
    def fail():
        print("so far so good")
        if dist.get_rank() == 1:
            raise RuntimeError("broken")
        dist.barrier()

    error = told(RankFailed, fail)
    assert capsys.readouterr().out == "[0] so far so good\n[1] so far so good\n"
    assert error.run.output == "[0] so far so good\n[1] so far so good\n"
    assert [e.op for e in error.run.trace.of(0)] == ["barrier"]


# ---- nothing comes back -----------------------------------------------------------------------


def test_a_hang_shows_where_every_rank_stands():
    def spin():
        if dist.get_rank() == 0:
            while True: pass  # fmt: skip # noqa: E701
        work = dist.barrier(async_op=True)
        return [work.wait() for _ in range(1)]

    error = told(Hang, spin, timeout=2.0)
    assert "did not return within 2 s" in str(error)
    assert "while True: pass" in str(error)
    assert "rank 1 waits in barrier()" in str(error)
    assert str(error).count("[work.wait() for _ in range(1)]") == 1  # though it has two frames
    assert error.seconds < 6


def receive_both():
    dist.recv(torch.empty(1), src=1 - dist.get_rank())


def send_both():
    dist.send(torch.ones(1), dst=1 - dist.get_rank())


def receive_in_a_circle():
    dist.recv(torch.empty(1), src=(dist.get_rank() + 1) % dist.get_world_size())


@pytest.mark.parametrize(
    ("fn", "size", "cycle", "words"),
    [
        (receive_both, 2, (0, 1), "One of them has to send before it receives."),
        (send_both, 2, (0, 1), "one of them has to receive before it sends."),
        (receive_in_a_circle, 3, (0, 1, 2), "0 → 1 → 2 → 0."),
    ],
)
def test_a_cycle_is_told(fn, size, cycle, words):
    error = told(Deadlock, fn, size)
    assert error.cycle == cycle
    assert str(error).startswith("every rank waits for another.\n")
    assert words in str(error)
    assert [w.rank for w in error.waits] == list(range(size))
    assert all("dist." in str(w.line) for w in error.waits)


def test_a_deadlock_is_told_in_seconds(monkeypatch):
    monkeypatch.undo()
    assert told(Deadlock, receive_both).seconds < 10


def test_waiting_for_a_work_that_never_comes_shows_the_line_of_the_wait():
    def wait():
        work = dist.irecv(torch.empty(1), src=1 - dist.get_rank())
        work.wait()

    error = told(Deadlock, wait)
    assert "rank 0 waits in irecv(src=1)" in str(error)
    assert error.waits[0].line.source == "work.wait()"


def test_a_peer_that_has_returned_is_named():
    def wait():
        if dist.get_rank() == 0:
            dist.recv(torch.empty(1), src=1)

    error = told(Deadlock, wait)
    assert str(error).startswith("rank 0 waits for rank 1, which has already returned.")


def test_a_member_missing_from_a_collective_is_named_while_another_rank_computes():
    def wait():
        if dist.get_rank() == 0:
            return
        if dist.get_rank() == 1:
            dist.barrier()
        time.sleep(30)

    error = told(Deadlock, wait, 3)
    assert [w.rank for w in error.waits] == [1]
    assert error.waits[0].on == (0,)


def test_any_source_waits_for_every_possible_sender():
    def wait():
        if dist.get_rank() == 0:
            dist.recv(torch.empty(1))

    error = told(Deadlock, wait, 3)
    assert error.waits[0].on == (1, 2)


def test_slow_is_not_stuck():
    long = 5 * deadlock.DEADLOCK_SECONDS

    def slow():
        rank = dist.get_rank()
        x = torch.ones(1)
        if rank == 0:
            time.sleep(long)
        if rank == 2:
            dist.recv(x)
        else:
            dist.send(x, 2) if rank == 0 else None
        dist.all_reduce(x)
        return x.item()

    assert run(slow, world_size=3).results == [3.0] * 3


# ---- calls that do not fit --------------------------------------------------------------------


def by_rank(first, second):
    """A function in which rank 0 does one thing and every other rank another."""

    def both():
        (first if dist.get_rank() == 0 else second)()

    return both


def reduce_of(n, dtype=torch.float32, op=dist.ReduceOp.SUM):
    return lambda: dist.all_reduce(torch.ones(n, dtype=dtype), op=op)


MISMATCHES = {
    "lengths": ("shape", by_rank(reduce_of(1000), reduce_of(1001))),
    "float and double": ("dtype", by_rank(reduce_of(9), reduce_of(9, torch.float64))),
    "float and int": ("dtype", by_rank(reduce_of(9), reduce_of(9, torch.int32))),
    "operations": ("op", by_rank(reduce_of(9), lambda: dist.broadcast(torch.ones(9), src=0))),
    "reduce ops": ("reduce op", by_rank(reduce_of(9), reduce_of(9, op=dist.ReduceOp.MAX))),
    "roots": ("root", by_rank(lambda: dist.broadcast(torch.ones(1), src=0),
                              lambda: dist.broadcast(torch.ones(1), src=1))),
    "inbox too small": ("shape", by_rank(lambda: dist.send(torch.ones(9), 1),
                                         lambda: dist.recv(torch.ones(4), 0))),
    "inbox too large": ("shape", by_rank(lambda: dist.send(torch.ones(4), 1),
                                         lambda: dist.recv(torch.ones(9), 0))),
    "inbox of another dtype": ("dtype", by_rank(lambda: dist.send(torch.ones(4), 1),
                                                lambda: dist.recv(torch.ones(2).double(), 0))),
    "tags": ("tag", by_rank(lambda: dist.send(torch.ones(4), 1, tag=1),
                            lambda: dist.recv(torch.ones(4), 0, tag=2))),
    "new_group by members only": ("op", by_rank(lambda: dist.new_group([0]),
                                                lambda: dist.barrier())),
}  # fmt: skip


@pytest.mark.parametrize("name", MISMATCHES)
def test_calls_that_do_not_fit_are_shown_side_by_side(name):
    what, fn = MISMATCHES[name]
    error = told(Mismatch, fn)
    assert error.what == what, str(error)
    assert error.ranks == (0, 1)
    assert all("dist." in str(line) for line in error.lines)
    assert "SIGABRT" not in str(error)


def test_a_sender_and_a_receiver_that_name_other_peers():
    def cross():
        rank = dist.get_rank()
        if rank == 0:
            dist.send(torch.ones(1), 1)
        if rank == 1:
            dist.recv(torch.ones(1), 2)

    error = told(Mismatch, cross, 3)
    assert error.what == "peer"
    assert str(error).startswith("rank 0 sends to rank 1, which receives from rank 2.")


def test_new_group_by_its_members_while_the_other_returns():
    def members_only():
        if dist.get_rank() < 2:
            dist.all_reduce(torch.ones(1), group=dist.new_group([0, 1]))

    error = told(Mismatch, members_only, 3)
    assert error.what == "op"
    assert "rank 2 never did" in str(error) or "new_group" in str(error)


def test_new_groups_that_each_half_makes_for_itself():
    def halves():
        mine = [0, 1] if dist.get_rank() < 2 else [2, 3]
        dist.all_reduce(torch.ones(1), group=dist.new_group(mine))

    error = told(Mismatch, halves, 4)
    assert error.what == "group"
    assert "[0, 1]" in str(error)


def test_new_groups_of_each_half_that_some_ranks_have_come_out_of():
    """Those of whom it is told may have returned, and others wait in it."""
    error = told(Mismatch, lambda: dist.new_group([0, 1] if dist.get_rank() < 2 else [2, 3]), 4)
    assert error.what == "group"


def test_a_group_that_only_its_members_make_where_that_is_allowed():
    def local():
        if dist.get_rank() < 2:
            group = dist.new_group([0, 1], use_local_synchronization=True)
            dist.all_reduce(torch.ones(1), group=group)
        dist.barrier()

    assert run(local, world_size=3).results == [None] * 3


def two_orders(one, two):
    """The ranks share two groups, and use them in two orders."""
    one, two = dist.new_group(one), dist.new_group(two)
    first, second = (one, two) if dist.get_rank() == 0 else (two, one)
    dist.all_reduce(torch.ones(1), group=first)
    dist.all_reduce(torch.ones(1), group=second)


@pytest.mark.parametrize(
    ("groups", "texts"),
    [
        (([0, 1], [0, 1, 2]), ("ranks 0 and 1", "ranks 0, 1 and 2", "ranks 0, 1 and 2")),
        (([0, 1, 2], [2, 1, 0]), ("ranks 0, 1 and 2",) * 3),
    ],
)
@pytest.mark.parametrize("engine", [run, partial(simulate, limit=9.0)])
def test_two_groups_used_in_two_orders_are_a_deadlock_that_names_both(engine, groups, texts):
    with pytest.raises(Deadlock) as caught:
        engine(two_orders, *groups, world_size=3)
    for wait, members in zip(caught.value.waits, texts, strict=True):
        assert wait.call == f"all_reduce(SUM) among {members}"
        assert wait.line.source == "dist.all_reduce(torch.ones(1), group=first)"
    assert str(caught.value).endswith("that share groups have to use them in the same order.")


@pytest.mark.parametrize("call", [dist.all_reduce, lambda x: dist.broadcast(x, 0)])
def test_a_strided_tensor_is_refused(call):
    def stride():
        call(torch.arange(8.0)[::2])

    assert told(Mismatch, stride).what == "stride"


def test_right_programs_are_not_accused():
    def right():
        rank, n = dist.get_rank(), dist.get_world_size()
        x = torch.arange(6.0).reshape(2, 3).t()
        dist.all_reduce(x)  # dense, though not contiguous
        dist.all_reduce(torch.ones(2, 3) if rank else torch.ones(3, 2))  # the same number
        dist.scatter(torch.empty(1), [torch.ones(1)] * n if rank == 0 else None, src=0)
        dist.gather(torch.ones(2), [torch.empty(2)] * n if rank == 1 else None, dst=1)
        splits = [1, 2] if rank == 0 else [1, 1]
        out = torch.empty(2 if rank == 0 else 3)
        dist.all_to_all_single(
            out, torch.ones(sum(splits)), [1, 1] if rank == 0 else [2, 1], splits
        )
        objects = [None] * n
        dist.all_gather_object(objects, "x" * (rank + 1))
        work = dist.all_reduce(torch.ones(1), async_op=True)
        while not work.is_completed():
            time.sleep(0.001)
        if rank == 0:
            dist.broadcast(torch.ones(1), src=0)
        else:
            dist.broadcast(torch.ones(1), src=0)
        return objects

    assert run(right, world_size=2).results == [["x", "xx"]] * 2


# ---- hazards ----------------------------------------------------------------------------------


def test_a_work_that_nobody_waits_for_is_a_hazard():
    def forget():
        if dist.get_rank() == 0:
            dist.isend(torch.ones(1), 1)
        else:
            dist.recv(torch.ones(1), 0)

    error = told(Hazard, forget)
    assert (error.kind, error.rank) == ("never waited for", 0)
    assert "dist.isend(torch.ones(1), 1)" in str(error)
    assert [e.waited for e in error.run.trace.of(0)] == [False]


# ---- in the cell ------------------------------------------------------------------------------


def test_expect_shows_the_error_and_keeps_it(capsys):
    with expect(Deadlock) as caught:
        run(receive_both, world_size=2)
    assert isinstance(caught.error, Deadlock)
    assert capsys.readouterr().out.startswith("Deadlock: every rank waits for another.\n  rank 0")


def test_expect_fails_when_nothing_goes_wrong():
    with pytest.raises(CourseError, match="should have ended in Deadlock"), expect(Deadlock):
        run(lambda: None, world_size=1)


def test_expect_lets_other_errors_through():
    with pytest.raises(RankFailed), expect(Deadlock):
        run(lambda: 1 / 0, world_size=1)


def test_errors_travel_between_processes():
    import pickle

    error = told(RankFailed, lambda: 1 / 0, 1)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.rank, copy.kind) == (str(error), 0, "ZeroDivisionError")


def ends_in_cpp():
    dist.barrier()
    if dist.get_rank() == 1:
        said = b"terminate called after throwing an instance of 'Error'\n  what():  no more\n"
        os.write(2, b"before\n" + said)
        os.abort()
    dist.barrier()


def test_what_cpp_says_at_its_end_is_part_of_the_error_and_not_of_the_output(capsys):
    with pytest.raises(RankDied, match=r"it said: terminate called .* what\(\): no more"):
        run(ends_in_cpp, world_size=2)
    assert capsys.readouterr().out == "[1] before\n"


def adds_up_unequal_lengths():
    dist.all_reduce(torch.ones(4 if dist.get_rank() else 400_000))


def test_where_a_mismatch_is_told_gloos_last_words_are_not(capsys):
    with pytest.raises(Mismatch):
        run(adds_up_unequal_lengths, world_size=2)
    assert capsys.readouterr().out == ""
