"""What a rank may ask about itself: its device, its clock, its seeds.

``device``, ``span`` and ``compute`` work in a real rank, in a simulated one and in no rank at all,
so that a function can be tried in one process before it is run on many. Each engine installs a
Context for its ranks. A thread's own Context (of a simulated rank) goes before the process's (of a
real rank).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from course_lib.trace import Curve


class Context:
    """What holds outside of any rank: the CPU, the wall clock, no records. Each engine's ranks have
    a subclass.
    """

    device = torch.device("cpu")
    inside = ""  # the innermost span that the rank is in

    def now(self) -> float:
        """Seconds since the run began, on this rank's clock."""
        return time.perf_counter()

    def add_span(self, name: str, start: float, end: float) -> None:
        """Record a stretch of time."""

    def add_memory(self, curve: Curve) -> None:
        """Record how many bytes of tensors were alive, as ``count_memory`` found."""

    def let_go(self) -> None:
        """Give other threads of this rank the time to drop tensors that they no longer need."""

    def compute(self, seconds: float) -> float | None:
        """Let this much of this rank's time pass. Returns the moment when it will have passed, or
        None if that is now.
        """
        time.sleep(seconds)
        return None


_process = Context()
_thread = threading.local()


def install(context: Context, *, thread_only: bool = False) -> None:
    """Make ``context`` the one that this process, or only this thread, answers from."""
    global _process
    if thread_only:
        _thread.context = context
    else:
        _process = context


def current() -> Context:
    return getattr(_thread, "context", None) or _process


def seed_rank(rank: int) -> None:
    """Seed torch, numpy and random with the rank's number: reproducible, and no two alike."""
    import numpy

    # torch.manual_seed also notes the caller's stack for a GPU that nobody may ever use
    torch.default_generator.manual_seed(rank)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(rank)
    numpy.random.seed(rank)
    random.seed(rank)


def device() -> torch.device:
    """This rank's ``torch.device``: ``cpu`` under gloo, its own GPU under NCCL."""
    return current().device


@contextmanager
def span(name: str) -> Iterator[None]:
    """Name a stretch of this rank's time; it appears in the trace and in ``draw.timeline``.

    >>> with span("forward"):
    ...     loss = model(inputs).sum()
    """
    context = current()
    start, outside = context.now(), context.inside
    context.inside = name
    try:
        yield
    finally:
        context.inside = outside
        context.add_span(name, start, context.now())


def compute(seconds: float) -> None:
    """Spend ``seconds`` computing: asleep under ``run``, in virtual time under ``simulate``."""
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"compute({seconds!r}): give a time in seconds, zero or more")
    context = current()
    start = context.now()
    end = context.compute(seconds)
    context.add_span("compute", start, context.now() if end is None else end)
