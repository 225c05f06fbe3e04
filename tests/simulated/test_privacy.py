"""Each simulated rank has to itself what a process has to itself, and nothing of it stays."""

from __future__ import annotations

import functools
import os
import random
import sys
import time
from typing import ClassVar

import numpy
import pytest
import torch
import torch.distributed as dist

from course_lib import RankFailed, compute, device, run, span
from course_lib.simulated import simulate

COUNTER = [0]


class Memory:
    seen: ClassVar[list[int]] = []


@functools.cache
def kept():
    return []


def touch_globals(argument):
    rank = dist.get_rank()
    COUNTER[0] += rank + 1
    Memory.seen.append(rank)
    argument.append(rank)
    kept().append(rank)
    dist.barrier()
    return COUNTER[0], list(Memory.seen), list(argument), list(kept())


def test_globals_classes_and_arguments_are_private():
    argument = [7]
    sim = simulate(touch_globals, argument, world_size=3)
    assert sim.results == [(r + 1, [r], [7, r], [r]) for r in range(3)]
    assert COUNTER == [0] and Memory.seen == [] and argument == [7] and kept() == []


def make_memory():
    memory = Memory()
    memory.rank = dist.get_rank()
    return memory


def test_results_come_back_as_the_callers_own_classes():
    assert [(type(m) is Memory, m.rank) for m in simulate(make_memory, world_size=2).results] == [
        (True, 0), (True, 1)]  # fmt: skip


def draw():
    """Draws on both sides of a change of hands."""
    out = []
    for _ in range(3):
        plain = torch.rand(1).item(), random.random(), float(numpy.random.rand())
        normal = torch.randn(1).item(), random.gauss(0, 1), float(numpy.random.randn())
        out.append((*plain, *normal))
        dist.barrier()
    return out


def test_random_numbers_are_those_of_real_ranks():
    assert simulate(draw, world_size=2).results == run(draw, world_size=2).results


def test_the_callers_generators_and_environment_are_left_alone():
    torch.manual_seed(5), random.seed(5), numpy.random.seed(5)
    want = torch.rand(1), random.random(), numpy.random.rand()
    torch.manual_seed(5), random.seed(5), numpy.random.seed(5)
    before = dict(os.environ)
    simulate(environment, world_size=3)
    assert (torch.rand(1), random.random(), numpy.random.rand()) == want
    assert dict(os.environ) == before
    assert "SIMULATED_NAME" not in os.popen("env").read()


def environment():
    draw()
    os.environ["SIMULATED_NAME"] = str(dist.get_rank())
    os.environ.pop("HOME", None)
    dist.barrier()
    return (
        os.environ["SIMULATED_NAME"],
        os.environ["RANK"],
        os.environ["WORLD_SIZE"],
        "HOME" in os.environ,
    )


def test_the_environment_is_private():
    assert simulate(environment, world_size=2).results == [
        ("0", "0", "2", False),
        ("1", "1", "2", False),
    ]


def tell_the_time():
    start = time.perf_counter(), time.time(), time.monotonic(), time.perf_counter_ns()
    time.sleep(1.0 + dist.get_rank())
    with span("work"):
        compute(0.5)
    end = time.perf_counter(), time.time(), time.monotonic(), time.perf_counter_ns()
    return [b - a for a, b in zip(start, end, strict=True)]


def test_time_is_virtual():
    begin = time.perf_counter()
    sim = simulate(tell_the_time, world_size=2)
    assert time.perf_counter() - begin < 1.0
    assert sim.results == [[1.5, 1.5, 1.5, 1_500_000_000], [2.5, 2.5, 2.5, 2_500_000_000]]
    assert [(s.rank, s.name, s.start, s.end) for s in sim.trace.spans] == [
        (0, "compute", 1.0, 1.5), (0, "work", 1.0, 1.5),
        (1, "compute", 2.0, 2.5), (1, "work", 2.0, 2.5),
    ]  # fmt: skip


def speak():
    print("one from", dist.get_rank())
    dist.barrier()
    print("two", file=sys.stderr)
    if dist.get_rank() == 1:
        print("x" * 200_000)


def test_output_is_shown_by_rank_and_cut(capsys):
    sim = simulate(speak, world_size=2)
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[:4] == ["[0] one from 0", "[0] two", "[1] one from 1", "[1] two"]
    assert "characters shown" in lines[-1] and len(shown) < 110_000
    assert sim.output == shown


def where():
    return (
        str(device()),
        dist.get_rank(),
        dist.get_world_size(),
        dist.get_backend(),
        dist.is_initialized(),
    )


def test_the_default_group_is_ready():
    assert simulate(where, world_size=2).results == [("cpu", r, 2, "gloo", True) for r in range(2)]


def fail():
    raise KeyError(dist.get_rank())


def test_nothing_stays_replaced():
    names = [(time, "sleep"), (time, "time"), (os, "fork"), (random, "random"), (sys, "stdout"),
             (numpy.random, "rand"), (torch.cuda, "_lazy_init")]  # fmt: skip
    before = [getattr(o, n) for o, n in names], torch.get_num_threads()
    with pytest.raises(RankFailed):
        simulate(fail, world_size=2)
    assert ([getattr(o, n) for o, n in names], torch.get_num_threads()) == before
