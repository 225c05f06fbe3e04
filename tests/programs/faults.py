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


def gives_away_what_is_filled() -> None:
    x, out = torch.ones(4), torch.zeros(8)
    work = dist.all_reduce(x, async_op=True)
    dist.all_gather_single(out, x)
    work.wait()


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


def monitors() -> None:
    dist.get_rank() or dist.monitored_barrier()


def fills_one() -> None:
    dist.all_gather([torch.zeros(2)] * 3, torch.ones(2))


def into_a_transpose() -> None:
    dist.all_to_all_single(torch.ones(2, 4).t(), torch.ones(4, 2))


def parts_of_three() -> None:
    if rank := dist.get_rank():
        dist.barrier() if rank == 1 else time.sleep(30)


def leaves_a_recv() -> None:
    os._exit(0) if dist.get_rank() else dist.recv(torch.ones(4), 1)


def sends_another_dtype() -> None:
    x = torch.ones(2)
    dist.recv(x.double(), 0) if dist.get_rank() else dist.send(torch.ones(4), 1)


LAST_WORDS = "it said: terminate called after throwing an instance of 'Error' what(): no more"
# What ranks give and what they expect, by rank.
SPLITS = (
    (partial(exchange, [[1, 1], [1, 1]], [[1, 3], [1, 1]]), "rank 1 sends 1 element to rank 0, wh"),
    (rows, "rank 0 sends 10 elements to rank 1, which expects 5"),
    (blocks, " sends 2 elements to rank "),
)
STRIDED = (
    (lambda: dist.broadcast(half(), 0), "half(), 0)"),
    (lambda: dist.reduce_scatter(half(), [torch.ones(4)] * 2), "reduce_scatter(half()"),
    # transposed, yet not dense: every other column is somebody else's
    (lambda: dist.all_reduce(torch.arange(24.0).reshape(4, 6).t()[::2]), "[::2])"),
)
UNORDERED = (
    (asks_for_the_future_alone, "rank 0 never waits for its all_reduce(SUM)."),
    (drops_a_recv, "rank 0 never waits for its irecv(src=1)."),
    (fills_twice, "gives all_reduce(SUM) a tensor that all_reduce(SUM) is still filling."),
    (gives_away_what_is_filled, "gives all_gather_single() a tensor that all_reduce(SUM) is"),
)
STOPPED = "rank 1 did not answer: it may be stopped"
MONITORED = "rank 0 waits in monitored_barrier"
ONE_TENSOR = "rank 0 lets all_gather fill one tensor 3 times"
PROGRAMS = [
    program("exit code 0, and a recv", RankDied, leaves_a_recv, (1,), "left early"),
    program("last words of C++", RankDied, on(1, ends_in_cpp), (1,), LAST_WORDS),
    program("SIGSTOP", Hang, on(1, kill_me(signal.SIGSTOP)), (0, 1), STOPPED, timeout=1.0),
    program("a member missing", Deadlock, parts_of_three, (1,), "for rank 0,", size=3),
    program("a monitored barrier", Deadlock, monitors, (0,), MONITORED, engines=GLOO),
    program("another dtype", Mismatch, sends_another_dtype, (0, 1), what="dtype", engines=GLOO),
    program("outputs", Mismatch, fills_one, (0,), ONE_TENSOR, size=3, engines=EVERYWHERE),
    program("all_to_all_single", Mismatch, into_a_transpose, (0,), ".t(), torch", what="stride"),
    *(program(says, Mismatch, fn, (), says, what="splits", engines=GLOO) for fn, says in SPLITS),
    *(program(says, Mismatch, fn, (0,), says, what="stride", engines=GLOO) for fn, says in STRIDED),
    *(
        program(fn.__name__, Hazard, fn, (0,), says, engines=GLOO)._replace(
            in_own_words=("simulate",) * fn.__name__.startswith(("fills", "gives"))
        )
        for fn, says in UNORDERED
    ),
]
