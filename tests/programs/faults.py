"""What can go wrong with ranks, and what has to be said of it, beside what docs/errors.md has. The
functions travel by value, as those of a notebook do: no rank imports this module.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist

from course_lib import Deadlock, Hang, Hazard, Mismatch, RankDied
from programs import EVERYWHERE, GLOO, Engine, Program

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def play(fn: Callable, size: int, options: dict[str, Any], engine: Engine) -> None:
    engine(fn, world_size=size, **options)


def program(
    name: str,
    kind: type[BaseException],
    fn: Callable,
    ranks: tuple[int, ...] = (),
    *says: str,
    size: int = 2,
    what: str = "",
    engines: tuple[str, ...] = ("run",),
    **options: Any,
) -> Program:
    return Program(name, kind, partial(play, fn, size, options), ranks, says, what, engines)


def on(rank: int, action: Callable[[], Any]) -> Callable[[], None]:
    """One rank does something, all others meet in a barrier, before and after."""

    def both() -> None:
        dist.barrier()
        if dist.get_rank() == rank:
            action()
        dist.barrier()

    return both


def by_rank(*steps: Callable[[], Any]) -> Callable[[], Any]:
    """Each rank does its own, and those that are left the last."""
    return lambda: steps[min(dist.get_rank(), len(steps) - 1)]()


def nothing() -> None:
    """A rank that returns at once."""


def fail() -> None:
    raise ValueError("no such thing")


def kill_me(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def ends_in_cpp() -> None:
    said = b"terminate called after throwing an instance of 'Error'\n  what():  no more\n"
    os.write(2, b"before\n" + said)
    os.abort()


def half() -> torch.Tensor:
    return torch.arange(8.0)[::2]


def fills_twice() -> None:
    x = torch.ones(4)
    for work in [dist.all_reduce(x, async_op=True) for _ in range(2)]:
        work.wait()


def fills_a_part_twice() -> None:
    x = torch.ones(8)
    works = [dist.all_reduce(x[:5], async_op=True), dist.broadcast(x[4:], 0, async_op=True)]
    for work in works:
        work.wait()


def gives_away_what_is_filled() -> None:
    x, out = torch.ones(4), torch.zeros(8)
    work = dist.all_reduce(x, async_op=True)
    dist.all_gather_single(out, x)
    work.wait()


def drops_the_work() -> None:
    dist.all_reduce(torch.ones(3), async_op=True)


def drops_a_recv() -> None:
    x = torch.ones(3)
    dist.send(x, 0) if dist.get_rank() else dist.irecv(x, 1)


def asks_for_the_future_alone() -> None:
    grad, flat = torch.zeros(3), torch.ones(3)
    dist.all_reduce(flat, async_op=True).get_future().then(lambda f: grad.copy_(f.value()[0]))


def exchange(gives: list[list[int]], expects: list[list[int]]) -> list[float]:
    """all_to_all_single with these splits, by rank."""
    rank = dist.get_rank()
    out = torch.empty(sum(expects[rank]))
    given = torch.full((sum(gives[rank]),), float(rank))
    dist.all_to_all_single(out, given, expects[rank], gives[rank])
    return out.tolist()


def rows() -> None:
    mine = [1, 1] if dist.get_rank() else [1, 2]
    dist.all_to_all_single(torch.empty(2, 5), torch.ones(sum(mine), 5), [1, 1], mine)


def blocks() -> None:
    rank, sizes = dist.get_rank(), ([1, 2], [2, 1])
    mine = sizes[rank]
    dist.reduce_scatter(torch.empty(mine[rank]), [torch.ones(n) for n in mine])


def logs(names: list[str]) -> None:
    for _ in names:
        dist.all_reduce(torch.ones(1))


def parts_and_goes_on() -> None:
    logs(["loss"] * (2 + (dist.get_rank() == 1)))
    dist.all_reduce(torch.ones(1))


# What ranks give and what they expect, by rank; the third time it fits rank 0.
ONES = [[1] * 3] * 3
SPLITS = [
    (partial(exchange, [[1, 1], [1, 1]], [[1, 3], [1, 1]]), 2,
     "rank 1 sends 1 element to rank 0, which expects 3."),
    (partial(exchange, [[1, 0], [1, 1]], [[1, 1], [1, 1]]), 2,
     "rank 0 sends 0 elements to rank 1, which expects 1."),
    (partial(exchange, [[1] * 3, [1, 1, 2], [1] * 3], ONES), 3,
     "rank 1 sends 2 elements to rank 2, which"),
    (rows, 2, "rank 0 sends 10 elements to rank 1, which expects 5"),
    (blocks, 2, " sends 2 elements to rank "),
]  # fmt: skip
STRIDED = {
    "half(), 0)": lambda: dist.broadcast(half(), 0),
    "scatter(half()": lambda: dist.scatter(
        half(), None if dist.get_rank() else [torch.ones(4)] * 2
    ),
    "reduce_scatter(half()": lambda: dist.reduce_scatter(half(), [torch.ones(4)] * 2),
    # transposed, yet not dense: every other column is somebody else's
    "[::2])": lambda: dist.all_reduce(torch.arange(24.0).reshape(4, 6).t()[::2]),
    ".t(), [": lambda: dist.reduce_scatter(torch.zeros(2, 4).t(), [torch.ones(4, 2)] * 2),
}
UNORDERED = {
    asks_for_the_future_alone: "rank 0 never waits for its all_reduce(SUM).",
    drops_the_work: "rank 0 never waits for its all_reduce(SUM).",
    drops_a_recv: "rank 0 never waits for its irecv(src=1).",
    fills_twice: "rank 0 gives all_reduce(SUM) a tensor that all_reduce(SUM) is still filling.",
    fills_a_part_twice: "a tensor that all_reduce(SUM) is still filling.",
    gives_away_what_is_filled: "rank 0 gives all_gather_single() a tensor that all_reduce(SUM) is",
}
PROGRAMS = [
    program("exit code 0, in a collective", RankDied, on(0, lambda: os._exit(0)), (0,),
            "rank 0 left early: its process ended with exit code 0."),
    program("exit code 0, and a recv", RankDied, by_rank(
            lambda: dist.recv(torch.ones(4), 1), lambda: os._exit(0)), (1,), "left early"),
    program("last words of C++", RankDied, on(1, ends_in_cpp), (1,),
            "it said: terminate called after throwing an instance of 'Error' what(): no more"),
    program("SIGSTOP", Hang, on(1, kill_me(signal.SIGSTOP)), (0, 1),
            "rank 1 did not answer: it may be stopped", timeout=1.0),
    program("a member missing while another computes", Deadlock, by_rank(
            nothing, dist.barrier, lambda: time.sleep(30)), (1,), "for rank 0,", size=3),
    program("a monitored barrier without all ranks", Deadlock,
            lambda: dist.get_rank() or dist.monitored_barrier(), (0,),
            "rank 0 waits in monitored_barrier", engines=GLOO),
    program("calls that had parted before", Deadlock, parts_and_goes_on, (1,),
            "They had parted before, at collective call 3:\n  ranks 0 and 2   ", size=3,
            engines=GLOO),
    program("an inbox of another dtype", Mismatch, by_rank(
            lambda: dist.send(torch.ones(4), 1),
            lambda: dist.recv(torch.ones(2).double(), 0)), (0, 1), what="dtype", engines=GLOO),
    program("an inbox too small", Mismatch, by_rank(
            lambda: dist.send(torch.ones(3), 1),
            lambda: dist.recv(torch.ones(3)[:2], 0)), (0, 1), what="shape", engines=EVERYWHERE),
    program("one tensor for all outputs", Mismatch,
            lambda: dist.all_gather([torch.zeros(2)] * 3, torch.ones(2)), (0,),
            "rank 0 lets all_gather fill one tensor 3 times", size=3, engines=EVERYWHERE),
    *(program(f"splits {number}", Mismatch, fn, (), says, size=size, what="splits", engines=GLOO)
      for number, (fn, size, says) in enumerate(SPLITS)),
    program("all_to_all_single into a slice", Mismatch,
            lambda: dist.all_to_all_single(half(), torch.ones(4)), (0,), "half()", what="stride"),
    program("all_to_all_single into a transpose", Mismatch,
            lambda: dist.all_to_all_single(torch.ones(2, 4).t(), torch.ones(4, 2)), (0,),
            ".t(), torch", what="stride"),
    *(program(f"strided: {says}", Mismatch, fn, (0,), says, what="stride", engines=GLOO)
      for says, fn in STRIDED.items()),
    *(program(fn.__name__, Hazard, fn, (0,), says, engines=GLOO)._replace(
      in_own_words=("simulate",) * fn.__name__.startswith(("fills", "gives")))
      for fn, says in UNORDERED.items()),
]  # fmt: skip
