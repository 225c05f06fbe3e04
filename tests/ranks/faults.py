"""What can go wrong with ranks, and what has to be said of it: here once each, in soak hundreds of
times. The functions travel by value, as those of a notebook do: no rank imports this module.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cloudpickle
import torch
import torch.distributed as dist

from course_lib import Deadlock, Hang, Hazard, Mismatch, RankDied, RankFailed, run

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Fault(NamedTuple):
    """One program; the class of its error, the ranks that it names, and parts of what it says."""

    name: str
    kind: type[BaseException]
    fn: Callable
    ranks: tuple[int, ...] = ()
    says: tuple[str, ...] = ()
    world_size: int = 2
    what: str = ""  # of a Mismatch
    options: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


def provoke(fault: Fault) -> BaseException | None:
    try:
        run(fault.fn, world_size=fault.world_size, **fault.options)
    except (Exception, KeyboardInterrupt) as error:  # whatever it is, it is judged
        return error
    return None


def wrong_with(fault: Fault, error: BaseException | None) -> str:
    """What is wrong with what was told; "" if nothing is."""
    told = f"{fault.name}: {type(error).__name__}: {error}"
    if type(error) is not fault.kind or getattr(error, "what", "") != fault.what:
        return told
    if not set(fault.ranks) <= set(named(error)):
        return f"not named: ranks {fault.ranks}: {told}"
    if lacking := [part for part in fault.says if part not in str(error)]:
        return f"not said: {lacking}: {told}"
    bare = fault.kind is Mismatch and ("SIGABRT" in told or "Connection" in told)
    return f"bare: {told}" if bare else ""


def named(error: Any) -> Sequence[int]:
    if isinstance(error, Mismatch):
        return error.ranks
    if isinstance(error, (Deadlock, Hang)):
        return [wait.rank for wait in error.waits]
    return [getattr(error, "rank", -1)]


# ---- programs -----------------------------------------------------------------------------------


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


def spin() -> None:
    while True: pass  # fmt: skip # noqa: E701


def kill_me(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def ends_in_cpp() -> None:
    said = b"terminate called after throwing an instance of 'Error'\n  what():  no more\n"
    os.write(2, b"before\n" + said)
    os.abort()


def waits_for_irecv() -> None:
    work = dist.irecv(torch.ones(1), src=1 - dist.get_rank())
    work.wait()


def cycle() -> None:
    dist.recv(torch.ones(1), (dist.get_rank() + 1) % dist.get_world_size())


def half() -> torch.Tensor:
    return torch.arange(8.0)[::2]


def group_of(*ranks: int) -> None:
    dist.all_reduce(torch.ones(1), group=dist.new_group(list(ranks)))


def by_hand(then: Callable[[], Any]) -> Callable[[], None]:
    def work() -> None:
        dist.init_process_group("gloo")
        then()

    return work


SHORT = {"timeout": 1.0}
FAULTS = [
    Fault("an exception", RankFailed, on(2, fail), (2,),
          ("rank 2 raised ValueError: no such thing", 'raise ValueError("no such thing")'), 4),
    Fault("an exception on every rank", RankFailed, fail, (0,), ("ranks 0, 1 and 2 raised",), 3),
    Fault("a result that cannot travel", RankFailed, threading.Lock, (0,), ("cannot pickle",)),
    Fault("a result too large", RankFailed, lambda: torch.empty(250_000_000), (0,),
          ("returned 1,000 MB or more",), 1),
    Fault("SIGKILL", RankDied, on(1, kill_me(signal.SIGKILL)), (1,),
          ("killed by SIGKILL (signal 9)",)),
    Fault("SIGSEGV", RankDied, on(0, lambda: ctypes.string_at(0)), (0,),
          ("SIGSEGV", "ctypes.string_at(0)")),
    Fault("exit code 0", RankDied, on(0, lambda: os._exit(0)), (0,),
          ("rank 0 left early: its process ended with exit code 0.",)),
    Fault("exit code 0, and a recv", RankDied, by_rank(
          lambda: dist.recv(torch.ones(4), 1), lambda: os._exit(0)), (1,), ("left early",)),
    Fault("sys.exit", RankDied, on(1, lambda: sys.exit(-1)), (1,),
          ("sys.exit(-1)", "A rank must not end before the others")),
    Fault("last words of C++", RankDied, on(1, ends_in_cpp), (1,),
          ("it said: terminate called after throwing an instance of 'Error' what(): no more",)),
    Fault("a loop without end", Hang, on(0, spin), (0, 1),
          ("did not return within 1 s", "while True: pass", "rank 1 waits in barrier()"), 2, "",
          SHORT),
    Fault("SIGSTOP", Hang, on(1, kill_me(signal.SIGSTOP)), (0, 1),
          ("rank 1 did not answer: it may be stopped",), 2, "", SHORT),
    Fault("recv, recv", Deadlock, by_rank(
          lambda: dist.recv(torch.ones(1), 1),
          lambda: dist.recv(torch.ones(2), 0)), (0, 1),
          ("every rank waits for another.\n", "One of them has to send before it receives.",
           "dist.recv(torch.ones(1), 1)", "dist.recv(torch.ones(2), 0)")),
    Fault("send, send", Deadlock, by_rank(
          lambda: dist.send(torch.ones(1), 1),
          lambda: dist.send(torch.ones(2), 0)), (0, 1),
          ("one of them has to receive before it sends.", "dist.send(torch.ones(1), 1)")),
    Fault("a cycle of three", Deadlock, cycle, (0, 1, 2), ("0 → 1 → 2 → 0.",), 3),
    Fault("a peer that has returned", Deadlock, by_rank(
          lambda: dist.recv(torch.ones(1), 1), nothing), (0,),
          ("rank 0 waits for rank 1, which has already returned.",)),
    Fault("a member missing while another computes", Deadlock, by_rank(
          nothing, dist.barrier, lambda: time.sleep(30)), (1,), ("for rank 0,",), 3),
    Fault("nobody sends to any source", Deadlock, by_rank(
          lambda: dist.recv(torch.ones(1)), nothing), (0,), ("for ranks 1 and 2,",), 3),
    Fault("a Work that never comes", Deadlock, waits_for_irecv, (0, 1),
          ("rank 0 waits in irecv(src=1)", "work.wait()")),
    Fault("lengths", Mismatch, by_rank(
          lambda: dist.all_reduce(torch.ones(4)),
          lambda: dist.all_reduce(torch.ones(400_000))), (0, 1),
          ("torch.ones(4)", "torch.ones(400_000)"), what="shape"),
    Fault("float and int", Mismatch, by_rank(
          lambda: dist.all_reduce(torch.ones(9)),
          lambda: dist.all_reduce(torch.ones(9).int())), (0, 1),
          ("torch.ones(9))", "torch.ones(9).int()"), what="dtype"),
    Fault("operations", Mismatch, by_rank(
          lambda: dist.all_reduce(torch.ones(9)),
          lambda: dist.broadcast(torch.ones(9), 0)), (0, 1),
          ("dist.all_reduce", "dist.broadcast"), what="op"),
    Fault("reduce ops", Mismatch, by_rank(
          lambda: dist.all_reduce(torch.ones(9)),
          lambda: dist.all_reduce(torch.ones(9), op=dist.ReduceOp.MAX)), (0, 1),
          ("torch.ones(9))", "op=dist.ReduceOp.MAX"), what="reduce op"),
    Fault("roots", Mismatch, by_rank(
          lambda: dist.broadcast(torch.ones(1), 0),
          lambda: dist.broadcast(torch.ones(1), 1)), (0, 1),
          ("dist.broadcast(torch.ones(1), 0)", "dist.broadcast(torch.ones(1), 1)"), what="root"),
    Fault("an inbox too large", Mismatch, by_rank(
          lambda: dist.send(torch.ones(4), 1),
          lambda: dist.recv(torch.ones(9), 0)), (0, 1),
          ("dist.send(torch.ones(4), 1)", "dist.recv(torch.ones(9), 0)"), what="shape"),
    Fault("an inbox of another dtype", Mismatch, by_rank(
          lambda: dist.send(torch.ones(4), 1),
          lambda: dist.recv(torch.ones(2).double(), 0)), (0, 1), what="dtype"),
    Fault("tags", Mismatch, by_rank(
          lambda: dist.send(torch.ones(4), 1, tag=1),
          lambda: dist.recv(torch.ones(4), 0, tag=2)), (0, 1),
          ("tag=1)", "tag=2)", "in the order of the sends"), what="tag"),
    Fault("peers", Mismatch, by_rank(
          lambda: dist.send(torch.ones(1), 1), lambda: dist.recv(torch.ones(1), 2), nothing),
          (0, 1), ("rank 0 sends to rank 1, which receives from rank 2.",), 3, "peer"),
    Fault("new_group by members, another in a collective", Mismatch, by_rank(
          lambda: group_of(0, 1), lambda: group_of(0, 1), dist.barrier), (0, 2),
          ("new_group", "barrier"), 3, "op"),
    Fault("new_group by members, another returns", Mismatch, by_rank(
          lambda: group_of(0, 1), lambda: group_of(0, 1), nothing), (0, 2),
          ("rank 2 never did",), 3, "op"),
    Fault("new_group of each half", Mismatch, by_rank(
          lambda: group_of(0, 1), lambda: group_of(0, 1), lambda: group_of(2, 3)), (0, 2),
          ("[0, 1]", "[2, 3]"), 4, "group"),
    Fault("all_reduce of a slice", Mismatch, lambda: dist.all_reduce(half()), (0,),
          ("gives all_reduce a strided tensor", "half()"), what="stride"),
    Fault("broadcast of a slice", Mismatch, lambda: dist.broadcast(half(), 0), (0,), ("half()",),
          what="stride"),
    Fault("all_to_all_single into a slice", Mismatch,
          lambda: dist.all_to_all_single(half(), torch.ones(4)), (0,), ("half()",), what="stride"),
    Fault("all_to_all_single into a transpose", Mismatch,
          lambda: dist.all_to_all_single(torch.ones(2, 4).t(), torch.ones(4, 2)), (0,), ("t()",),
          what="stride"),
    Fault("scatter into a slice", Mismatch,
          lambda: dist.scatter(half(), None if dist.get_rank() else [torch.ones(4)] * 2), (0,),
          ("half()",), what="stride"),
    Fault("reduce_scatter into a slice", Mismatch,
          lambda: dist.reduce_scatter(half(), [torch.ones(4)] * 2), (0,), ("half()",),
          what="stride"),
    Fault("a Work that nobody waits for", Hazard, by_rank(
          lambda: dist.isend(torch.ones(1), 1) and None,
          lambda: dist.recv(torch.ones(1), 0)), (0,), ("dist.isend(torch.ones(1), 1)",)),
]  # fmt: skip
