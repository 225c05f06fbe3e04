"""What a process has to itself, given to threads: each rank its own.

    function, globals, arguments    a pickled copy for each rank
    torch's random generator        one for all: its state is swapped when the baton changes hands
    random's and numpy.random's     functions that ask the calling rank's own generator
    os.environ                      the mapping behind it is swapped
    time                            sleep spends, and the clocks show, virtual time
    sys.stdout, sys.stderr          written to the rank's own pages
    processes, threads, CUDA        refused

All of it is put in place when a simulation starts and taken back when it ends. Threads that are
no ranks see the originals throughout.
"""

from __future__ import annotations

import functools
import io
import math
import multiprocessing.process
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from course_lib import context
from course_lib.simulated import compat
from course_lib.simulated.scheduler import Rank, Scheduler
from course_lib.trace import Span

_here = threading.local()  # .rank: the Rank whose thread this is
PROCESSES = ("fork", "forkpty", "system", "posix_spawn", "posix_spawnp", "popen", "_exit", "abort",
              "execv", "execve", "execl", "execlp", "execvp", "execvpe")  # fmt: skip
MOST_OUTPUT = 100_000  # characters shown of one rank


def current() -> Rank | None:
    """The rank whose thread is asking, or None."""
    return getattr(_here, "rank", None)


class State(context.Context):
    """What is private to one rank, and what course_lib.context asks about it."""

    def __init__(self, scheduler: Scheduler, rank: Rank, environ: dict) -> None:
        self.scheduler, self.rank, self.environ = scheduler, rank, environ
        self.torch_state: torch.Tensor | None = None
        self.generators: dict[int, Any] = {}
        self.pages = io.StringIO()

    def now(self) -> float:
        return self.scheduler.mark(self.rank)

    def add_span(self, name: str, start: float, end: float) -> None:
        self.rank.spans.append(Span(self.rank.number, name, start, end))

    def compute(self, seconds: float) -> float | None:
        self.scheduler.check(self.rank)
        return self.scheduler.compute(self.rank, seconds)


class Privacy:
    """Swaps what is private when the baton changes hands, and puts all back at the end."""

    def __init__(self, scheduler: Scheduler, world_size: int, more: Sequence[Place] = ()) -> None:
        self._scheduler, self._places = scheduler, [*_places(), *more]
        self._generator = torch.default_generator
        self._environ = os.environ._data  # type: ignore[attr-defined]
        for rank in scheduler.ranks:
            environ = dict(self._environ)
            rank.state = State(scheduler, rank, environ)
            for name, value in torchrun_names(rank.number, world_size).items():
                environ[os.environ.encodekey(name)] = os.environ.encodevalue(value)

    def switch(self, before: Rank | None, rank: Rank | None) -> None:
        """The baton goes from one rank to another; None is the caller of simulate()."""
        state = self._generator.get_state()
        if before is None:
            self._callers = state
        else:
            before.state.torch_state = state
        if rank is None:
            following, environ = self._callers, self._environ
        else:
            following, environ = rank.state.torch_state, rank.state.environ
        if following is not None:
            self._generator.set_state(following)
        compat.swap_environ(environ)

    def enter(self, rank: Rank) -> None:
        """First thing in a rank's own thread."""
        _here.rank = rank
        context.install(rank.state, thread_only=True)
        context.seed_rank(rank.number)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Everything is replaced inside."""
        threads = torch.get_num_threads()
        state = self._generator.get_state()
        originals = [(owner, name, vars(owner).get(name, _INHERITED))
                     for owner, name, _ in self._places]  # fmt: skip
        try:
            for owner, name, replace in self._places:
                setattr(owner, name, replace(getattr(owner, name)))
            torch.set_num_threads(1)
            yield
        finally:
            for owner, name, original in originals:
                if original is _INHERITED:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
            torch.set_num_threads(threads)
            self._generator.set_state(state)
            compat.swap_environ(self._environ)
            self._restore_c_environ()

    def _restore_c_environ(self) -> None:
        """Setting a variable also tells C, whose environment nobody swaps."""
        names = set().union(*(r.state.environ for r in self._scheduler.ranks)) - set(self._environ)
        for name in names:
            os.unsetenv(name)
        for name, value in self._environ.items():
            if any(r.state.environ.get(name) != value for r in self._scheduler.ranks):
                os.putenv(name, value)

    def output(self) -> str:
        """What all ranks printed, rank by rank, each line with its [rank]."""
        return "".join(_shown(rank) for rank in self._scheduler.ranks)


# ---- what is replaced --------------------------------------------------------------------------

Replace = Callable[[Any], Any]  # from the original to what stands in its place
Place = tuple[Any, str, Replace]
_INHERITED = object()


@functools.cache
def _places() -> list[Place]:
    """Owner, name and replacement of everything that is replaced: the same in every simulation."""

    def clock(scale: float, kind: type) -> Replace:
        return for_ranks(lambda rank: kind(rank.state.scheduler.read_clock() * scale))

    out: list[Place] = [(time, "sleep", for_ranks(_sleep))]
    for name in ("time", "monotonic", "perf_counter"):
        out += [(time, name, clock(1.0, float)), (time, name + "_ns", clock(1e9, int))]
    for number, (module, names, make) in enumerate(compat.shared_generators()):
        out += [(module, name, for_ranks(functools.partial(_draw, number, make, method)))
                for name, method in names.items()]  # fmt: skip
    processes: list[Any] = [(os, name) for name in PROCESSES if hasattr(os, name)]
    processes += [(subprocess.Popen, "__init__"), (multiprocessing.process.BaseProcess, "start")]
    what = for_ranks(_refuse("cannot start or end processes: use run(), where ranks are processes"))
    out += [(owner, name, what) for owner, name in processes]
    what = for_ranks(_refuse("cannot start threads: use run(), where ranks are processes"))
    out.append((threading.Thread, "start", what))
    no_cuda = "has no GPU: use course_lib.device(), which is the CPU here, or run(backend='nccl')"
    out.append((torch.cuda, "_lazy_init", for_ranks(_refuse(no_cuda))))
    return [*out, (sys, "stdout", _Pages), (sys, "stderr", _Pages)]


def _sleep(rank: Rank, seconds: float) -> None:
    if not 0 <= seconds < math.inf:
        raise ValueError(f"sleep({seconds!r}): give a time in seconds, zero or more")
    scheduler = rank.state.scheduler
    scheduler.check(rank)
    scheduler.spend(rank, seconds)


def torchrun_names(rank: int, world_size: int) -> dict[str, str]:
    """What torchrun tells a rank on a machine that holds them all."""
    size, number = str(world_size), str(rank)
    return {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # fmt: skip


def for_ranks(replacement: Callable[..., Any]) -> Replace:
    """A function that is ``replacement(rank, …)`` in a rank's thread, the original elsewhere."""

    def replace(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            rank = getattr(_here, "rank", None)
            return original(*args, **kwargs) if rank is None else replacement(rank, *args, **kwargs)

        return functools.wraps(original)(call) if hasattr(original, "__name__") else call

    return replace


def _refuse(what: str) -> Callable[..., Any]:
    def refuse(rank: Rank, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"a simulated rank {what}")

    return refuse


def _draw(
    number: int, make: Callable[[], Any], name: str, rank: Rank, *args: Any, **kwargs: Any
) -> Any:
    """Call a function of ``random`` or ``numpy.random`` on the rank's own generator."""
    generators = rank.state.generators
    if number not in generators:  # context.seed_rank seeds it at once
        generators[number] = make()
    return getattr(generators[number], name)(*args, **kwargs)


class _Pages(io.TextIOBase):
    """Standard output that keeps apart what ranks write."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def write(self, text: str) -> int:
        rank = current()
        if rank is None:
            return self._original.write(text)
        return rank.state.pages.write(text)

    def flush(self) -> None:
        if current() is None:
            self._original.flush()

    def writable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _shown(rank: Rank) -> str:
    text = rank.state.pages.getvalue()
    lines = text[:MOST_OUTPUT].splitlines()
    if len(text) > MOST_OUTPUT:
        lines.append(f"… {MOST_OUTPUT:,} of {len(text):,} characters shown")
    return "".join(f"[{rank.number}] {line}\n" for line in lines)
