"""Which send meets which recv; groups; schedules; the trace."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from course_lib import compute
from course_lib.context import current
from course_sim import Network, simulate


def first_come(late=0.0):
    n, rank = dist.get_world_size(), dist.get_rank()
    compute(0.0 if rank else late)
    if rank:
        compute(1.0 / rank)
        dist.send(torch.tensor([rank]), 0)
        return None
    inbox, got = torch.zeros(1, dtype=torch.int64), []
    for _ in range(n - 1):
        source = dist.recv(inbox)
        got.append((source, inbox.item()))
    return got


def test_a_recv_from_any_source_takes_the_earliest_arrival():
    for late in (0.0, 5.0):
        sim = simulate(first_come, late, world_size=4)
        assert sim.results[0] == [(3, 3), (2, 2), (1, 1)]
        assert [e.peer for e in sim.trace.of(0)] == [3, 2, 1]


def any_then_named():
    """Posted first, served first: the recv from any source gets rank 1's first message."""
    if dist.get_rank() == 1:
        for k in (1, 2):
            dist.send(torch.tensor([k]), 0)
        return None
    a, b = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    works = [dist.irecv(a), dist.irecv(b, 1)]
    for work in works:
        work.wait()
    return a.item(), b.item()


def test_a_wait_with_a_timeout_ends_in_virtual_time():
    def program():
        x = torch.full((2,), 1.0 - dist.get_rank())
        if dist.get_rank() == 0:
            compute(3.0)
            return dist.isend(x, 1).wait(timedelta(seconds=9))
        work, told = dist.irecv(x, 0), []
        for seconds in (1, 1, 5):
            try:
                told.append(work.wait(timedelta(seconds=seconds)))
            except RuntimeError as error:
                told.append(str(error)[:9])
        return told, x.tolist(), current().now()

    network = Network(latency=0.25, bandwidth=1e12)
    done, (told, values, seconds) = simulate(program, world_size=2, network=network).results
    assert (done, told, values) == (True, ["Timed out", "Timed out", True], [1.0, 1.0])
    assert 3.0 < seconds < 4.0


def test_nobody_deadlocks_who_has_a_timeout():
    def program():
        if dist.get_rank() == 1:
            with pytest.raises(RuntimeError):
                dist.irecv(torch.zeros(1), 0).wait(timedelta(milliseconds=200))
        return True

    assert simulate(program, world_size=2).results == [True, True]


def test_recvs_are_served_in_the_order_of_posting():
    assert simulate(any_then_named, world_size=2).results[0] == (1, 2)


def by_arrival():
    """The answer depends on who comes first."""
    rank, inbox = dist.get_rank(), torch.zeros(1)
    if rank:
        return dist.send(torch.ones(1), 0)
    return [dist.recv(inbox) for _ in range(dist.get_world_size() - 1)]


def test_who_comes_at_the_same_time_is_taken_in_any_order():
    """In the ranks' order without a seed; the seeds between them show every order."""
    play = functools.partial(simulate, by_arrival, world_size=4)
    assert play().results[0] == [1, 2, 3]
    seen = {tuple(play(seed=seed).results[0]) for seed in range(1, 25)}
    assert seen == set(itertools.permutations([1, 2, 3]))


def by_rank():
    return sorted(by_arrival() or [])


def busy():
    n, rank = dist.get_world_size(), dist.get_rank()
    x, y = torch.full((5,), float(rank)), torch.zeros(5)
    for _ in range(4):
        work = dist.isend(x, (rank + 1) % n)
        dist.recv(y, (rank - 1) % n)
        work.wait()
        dist.all_reduce(y)
        compute(1e-6 * rank)
    return y


def without_times(trace):
    return [
        [replace(event, issued=0.0, completed=None) for event in trace.of(rank)]
        for rank in range(6)
    ]


def test_another_seed_gives_other_times_and_nothing_else():
    network = Network(jitter=0.5)
    one, other = (simulate(busy, world_size=6, network=network, seed=k).trace for k in (4, 5))
    assert one != other and without_times(one) == without_times(other)


@pytest.mark.slow
def test_the_same_program_and_seed_give_the_same_trace_in_another_process():
    """Where strings have other hashes and memory other addresses."""
    code = (
        "import hashlib, pickle; from course_sim import Network, simulate; "
        "import test_messages; net = Network(jitter=0.5); "
        "run = simulate(test_messages.busy, world_size=6, network=net, seed=4); "
        "print(hashlib.sha256(pickle.dumps(run.trace)).hexdigest())"
    )
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    here = simulate(busy, world_size=6, network=Network(jitter=0.5), seed=4)
    assert done.stdout.strip() == hashlib.sha256(pickle.dumps(here.trace)).hexdigest()


def rows_and_columns():
    rank, x = dist.get_rank(), torch.tensor([2 ** dist.get_rank()])
    out = []
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
    for group, ranks in zip(groups, ([0, 1], [2, 3], [0, 2], [1, 3]), strict=True):
        if rank in ranks:
            y = x.clone()
            dist.all_reduce(y, group=group)
            out.append(y.item())
        else:
            assert group == dist.GroupMember.NON_GROUP_MEMBER
    mine, _ = dist.new_subgroups(2)
    dist.broadcast(x, dist.get_global_rank(mine, 1), group=mine)
    return [*out, x.item(), dist.get_rank(mine), dist.get_process_group_ranks(mine)]


def test_groups_keep_to_themselves():
    assert simulate(rows_and_columns, world_size=4).results == [
        [3, 5, 2, 0, [0, 1]],
        [3, 10, 2, 1, [0, 1]],
        [12, 5, 8, 0, [2, 3]],
        [12, 10, 8, 1, [2, 3]],
    ]


def members_alone():
    if dist.get_rank() > 0:
        group = dist.new_group([1, 2], use_local_synchronization=True)
        dist.barrier(group)


def test_groups_may_be_made_by_their_members_alone():
    simulate(members_alone, world_size=3)


def swapped_collectives():
    x, y = torch.ones(2), torch.full((2,), 5.0)
    for tensor in (x, y) if dist.get_rank() == 0 else (y, x):
        dist.all_reduce(tensor)
    return x.tolist()


def test_swapped_collectives_of_one_signature_are_nobodys_error():
    """They cannot be told from a right program; the values are wrong, as on gloo."""
    assert simulate(swapped_collectives, world_size=2).results == [[6.0, 6.0], [6.0, 6.0]]


def overlapped(seconds):
    work = dist.all_reduce(torch.ones(1000), async_op=True)
    compute(seconds)
    work.wait()


def test_communication_and_computation_overlap():
    alone = simulate(overlapped, 0.0, world_size=4).seconds
    assert simulate(overlapped, alone / 2, world_size=4).seconds == pytest.approx(alone)
    assert simulate(overlapped, alone * 3, world_size=4).seconds == pytest.approx(alone * 3)
