"""Every mistake that plain gloo keeps quiet about or dies of: named in 100 runs of 100.

    COUNT=10 make soak SOAK_ARGS="-k mistakes"      a short version

Which rank comes first is left to chance, here a little more than usual: each sleeps for a moment
before its call. Left out are two collectives of one signature in swapped order, which no log can
tell from a right program.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from soak_ranks_common import by_value, count, median, report

from course_lib import CourseError, Deadlock, Hazard, Mismatch, RankDied, run
from course_lib.trace import Line

by_value(__name__)
AT_ONCE = 4  # worlds that run beside one another


class Mistake(NamedTuple):
    """``steps[rank]`` is what each rank does; ``source`` has the text of the lines to be named."""

    name: str
    kind: type[CourseError]
    steps: Sequence[Callable[[], Any]]
    ranks: tuple[int, ...]  # those that have to be named
    lines: tuple[str, ...]  # a part of each line that has to be shown
    what: str = ""  # of a Mismatch, where there is one right word for it


def nothing() -> None:
    """A rank that returns at once."""


def half_of_it() -> torch.Tensor:
    return torch.arange(8.0)[::2]


def forgets() -> None:
    dist.isend(torch.ones(1), 1)


def members_make_a_group() -> None:
    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(1), group=group)


def others_make_a_group() -> None:
    group = dist.new_group([2, 3])
    dist.all_reduce(torch.ones(1), group=group)


MISTAKES = [
    Mistake("1000 elements, 1001 elements", Mismatch,
            (lambda: dist.all_reduce(torch.ones(1000)), lambda: dist.all_reduce(torch.ones(1001))),
            (0, 1), ("torch.ones(1000)", "torch.ones(1001)"), "shape"),
    Mistake("float32, float64", Mismatch,
            (lambda: dist.all_reduce(torch.ones(9)),
             lambda: dist.all_reduce(torch.ones(9).double())),
            (0, 1), ("torch.ones(9)", "torch.ones(9).double()"), "dtype"),
    Mistake("float32, int32", Mismatch,
            (lambda: dist.all_reduce(torch.ones(9)), lambda: dist.all_reduce(torch.ones(9).int())),
            (0, 1), ("torch.ones(9)", "torch.ones(9).int()"), "dtype"),
    Mistake("all_reduce, broadcast", Mismatch,
            (lambda: dist.all_reduce(torch.ones(9)), lambda: dist.broadcast(torch.ones(9), 0)),
            (0, 1), ("dist.all_reduce", "dist.broadcast"), "op"),
    Mistake("send, send", Deadlock,
            (lambda: dist.send(torch.ones(4), 1), lambda: dist.send(torch.ones(4), 0)),
            (0, 1), ("dist.send(torch.ones(4), 1)", "dist.send(torch.ones(4), 0)")),
    Mistake("recv, recv", Deadlock,
            (lambda: dist.recv(torch.ones(4), 1), lambda: dist.recv(torch.ones(4), 0)),
            (0, 1), ("dist.recv(torch.ones(4), 1)", "dist.recv(torch.ones(4), 0)")),
    Mistake("inbox too small", Mismatch,
            (lambda: dist.send(torch.ones(9), 1), lambda: dist.recv(torch.ones(4), 0)),
            (0, 1), ("dist.send(torch.ones(9), 1)", "dist.recv(torch.ones(4), 0)"), "shape"),
    Mistake("inbox too large", Mismatch,
            (lambda: dist.send(torch.ones(4), 1), lambda: dist.recv(torch.ones(9), 0)),
            (0, 1), ("dist.send(torch.ones(4), 1)", "dist.recv(torch.ones(9), 0)"), "shape"),
    Mistake("a peer that exits with code 0", RankDied,
            (lambda: dist.recv(torch.ones(4), 1), lambda: os._exit(0)), (1,), ()),
    Mistake("a peer that exits from a collective", RankDied,
            (dist.barrier, lambda: os._exit(0), dist.barrier), (1,), ()),
    Mistake("isend without wait", Hazard,
            (forgets, lambda: dist.recv(torch.ones(1), 0)),
            (0,), ("dist.isend(torch.ones(1), 1)",)),
    Mistake("SUM, MAX", Mismatch,
            (lambda: dist.all_reduce(torch.ones(9)),
             lambda: dist.all_reduce(torch.ones(9), op=dist.ReduceOp.MAX)),
            (0, 1), ("dist.all_reduce(torch.ones(9))", "op=dist.ReduceOp.MAX"), "reduce op"),
    Mistake("all_reduce of a slice", Mismatch,
            (lambda: dist.all_reduce(half_of_it()),) * 2, (0,), ("half_of_it()",), "stride"),
    Mistake("broadcast of a slice", Mismatch,
            (lambda: dist.broadcast(half_of_it(), 0),) * 2, (0,), ("half_of_it()",), "stride"),
    Mistake("new_group by members, others in a collective", Mismatch,
            (members_make_a_group, members_make_a_group, dist.barrier),
            (0, 2), ("dist.new_group([0, 1])", "barrier"), "op"),
    Mistake("new_group by members, others return", Mismatch,
            (members_make_a_group, members_make_a_group, nothing), (0, 2), ("dist.new_group",)),
    Mistake("new_group by members, others make another", Mismatch,
            (members_make_a_group, members_make_a_group, others_make_a_group, others_make_a_group),
            (0, 2), ("dist.new_group([0, 1])", "dist.new_group([2, 3])")),
]  # fmt: skip


def after_a_moment(steps: Sequence[Callable[[], Any]], moments: Sequence[float]) -> Any:
    """Each rank sleeps for its own moment, then makes its step."""
    rank = dist.get_rank()
    time.sleep(moments[rank])
    return steps[rank]()


def fault_of(mistake: Mistake, seed: int) -> tuple[float, str]:
    """Seconds until it was told, and what was wrong with what was told ("" for nothing)."""
    draw = random.Random(seed)
    moments = [draw.choice((0.0, 0.02 * draw.random())) for _ in mistake.steps]
    start = time.perf_counter()
    try:
        run(after_a_moment, mistake.steps, moments, world_size=len(mistake.steps), timeout=20.0)
    except CourseError as error:
        return time.perf_counter() - start, _judge(mistake, error)
    return time.perf_counter() - start, "no error"


def _judge(mistake: Mistake, error: CourseError) -> str:
    told = f"{type(error).__name__}: {error}"
    if type(error) is not mistake.kind:
        return told
    if mistake.what and getattr(error, "what", "") != mistake.what:
        return told
    if not set(mistake.ranks) <= set(_ranks(error)):
        return f"not named: ranks {mistake.ranks}: {told}"
    if lacking := [line for line in mistake.lines if line not in str(error)]:
        return f"not shown: {lacking}: {told}"
    return f"bare: {told}" if "SIGABRT" in told or "Connection" in told else ""


def _ranks(error: Any) -> Sequence[int]:
    if isinstance(error, Mismatch):
        return error.ranks
    if isinstance(error, Deadlock):
        return [wait.rank for wait in error.waits]
    return [error.rank]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)
def test_a_mistake_is_named_every_time(mistake):
    number = count(100)
    run(nothing, world_size=len(mistake.steps))  # the fork server is started once
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = list(pool.map(lambda seed: fault_of(mistake, seed), range(number)))
    wrong = [f"run {seed}: {what}" for seed, (_, what) in enumerate(told) if what]
    seconds = [seconds for seconds, _ in told]
    report("ranks_mistake-" + "".join(c if c.isalnum() else "_" for c in mistake.name),
           mistake=mistake.name, runs=number, right=number - len(wrong), wrong=wrong[:5],
           seconds_median=median(seconds), seconds_most=round(max(seconds), 2))  # fmt: skip
    assert not wrong


def test_the_judge_can_see():
    """A wrong class, a wrong property, another rank, a line that is not shown."""
    mistake = MISTAKES[0]
    lines = [Line("cell [1]", n, source) for n, source in enumerate(mistake.lines)]
    text = "\n".join(lines)
    assert _judge(mistake, Mismatch(text, what="shape", ranks=(0, 1), lines=lines)) == ""
    assert _judge(mistake, Deadlock(text))
    assert _judge(mistake, Mismatch(text, what="dtype", ranks=(0, 1), lines=lines))
    assert _judge(mistake, Mismatch(text, what="shape", ranks=(0, 2), lines=lines))
    assert _judge(mistake, Mismatch(lines[0], what="shape", ranks=(0, 1), lines=lines))
    assert _judge(mistake, Mismatch(text + " SIGABRT", what="shape", ranks=(0, 1), lines=lines))
