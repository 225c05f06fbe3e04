"""Running ahead gives what the plain way gives, byte for byte, or gives way to it."""

from __future__ import annotations

import pickle
import time

import pytest
import test_agreement as agreement
import test_hazards as hazards
import test_messages as messages
import test_network as network
import torch
import torch.distributed as dist
from random_programs import execute, make_program

from course_lib import Deadlock, Hazard, compute
from course_sim import Network, ahead, engine, simulate
from course_sim.tensor_memory import equal


@pytest.fixture
def ran_ahead(monkeypatch):
    """Whether each execution that ran ahead was conclusive."""
    seen: list[bool] = []
    play = engine.Execution.play

    def note(self):
        play(self)
        if self.run_ahead:
            seen.append(self.conclusive)

    monkeypatch.setattr(engine.Execution, "play", note)
    return seen


def check_same(monkeypatch, program, *args, **words):
    monkeypatch.setattr(ahead, "FROM", 10**9)
    plain = simulate(program, *args, **words)
    monkeypatch.setattr(ahead, "FROM", 1)
    run = simulate(program, *args, **words)
    assert pickle.dumps(plain.trace) == pickle.dumps(run.trace)
    assert equal(plain.results, run.results) and plain.seconds == run.seconds


JITTERED = {"network": Network(jitter=0.5), "seed": 3}


@pytest.mark.parametrize(
    ("program", "args", "n", "words"),
    [
        (network.star, (), 8, JITTERED),
        (network.ring, (5,), 6, {"buffered": True, "seed": 3}),
        (network.nodes_exchange, (2,), 4, {"network": Network.cluster(2, 2)}),
        (agreement.every_kind_of_call, (), 3, JITTERED),
        (messages.rows_and_columns, (), 4, {}),
    ],
)
def test_it_gives_the_same_run(monkeypatch, ran_ahead, program, args, n, words):
    check_same(monkeypatch, program, *args, world_size=n, **words)
    assert ran_ahead and all(ran_ahead)


def test_random_programs_give_the_same_run(monkeypatch, ran_ahead):
    for program in map(make_program, range(12)):
        check_same(monkeypatch, execute, program, world_size=program["n"])
    assert any(ran_ahead)


def looks_at_the_clock():
    dist.barrier()
    return time.perf_counter()


@pytest.mark.parametrize("program", [looks_at_the_clock, messages.first_come])
def test_what_depends_on_time_is_run_step_by_step(monkeypatch, ran_ahead, program):
    check_same(monkeypatch, program, world_size=3)
    assert not any(ran_ahead)


def both_send_then_fail():
    """Values alone would let it come to the last line."""
    x, other = torch.ones(1), 1 - dist.get_rank()
    dist.send(x, other)
    dist.recv(x, other)
    raise KeyError("never reached under rendezvous")


@pytest.mark.parametrize(
    ("program", "error"), [(both_send_then_fail, Deadlock), (hazards.branched_on, Hazard)]
)
def test_errors_are_those_of_the_plain_way(monkeypatch, program, error):
    texts = []
    for start in (10**9, 1):
        monkeypatch.setattr(ahead, "FROM", start)
        with pytest.raises(error) as caught:
            simulate(program, world_size=2)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_what_was_tried_ahead_in_vain_is_not_shown(monkeypatch, capsys):
    def program():
        print("once")
        time.perf_counter()

    monkeypatch.setattr(ahead, "FROM", 1)
    simulate(program, world_size=2)
    assert capsys.readouterr().out == "[0] once\n[1] once\n"


def test_large_worlds_run_ahead(ran_ahead):
    simulate(dist.barrier, world_size=ahead.FROM)
    assert ran_ahead == [True]


def later(future):
    compute(1e-6 * (1 + dist.get_rank()))
    return future.wait()[0].item()


def calls_back():
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    whole = future.then(later)
    return whole.then(lambda f: f.wait() + 1).wait(), whole.done()


@pytest.mark.parametrize("n", [3, ahead.FROM])
def test_time_may_pass_in_a_callback_of_a_future(n):
    assert simulate(calls_back, world_size=n, limit=10).results == [(n + 1.0, True)] * n
