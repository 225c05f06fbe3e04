"""What a process has to itself, given to threads: each rank its own.

    function, globals, arguments    a pickled copy for each rank
    torch's random generator        one for all: its state is swapped when the baton changes hands
    random's and numpy.random's     functions that ask the calling rank's own generator
    the user's own modules          each rank imports them anew: see modules.py
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
import torch.distributed as dist

from course_lib import context, rendezvous
from course_lib.simulated import compat, store
from course_lib.simulated.modules import Modules
from course_lib.simulated.scheduler import Rank, Scheduler
from course_lib.terminal import arguments

PROCESSES = ("fork", "forkpty", "system", "posix_spawn", "posix_spawnp", "popen", "_exit", "abort",
              "execv", "execve", "execl", "execlp", "execvp", "execvpe")  # fmt: skip
MOST_OUTPUT = 100_000  # characters shown of one rank


def current() -> Rank | None:
    """The rank whose thread is asking, or None."""
    here = context.current()
    return here if isinstance(here, Rank) else None


class Privacy:
    """Swaps what is private when the baton changes hands, and puts all back at the end."""

    def __init__(
        self, scheduler: Scheduler, modules: dict[str, Any], more: Sequence[Place] = ()
    ) -> None:
        """``modules``: the user's own, which each rank imports for itself."""
        self.modules = Modules(modules, current)
        self._ranks, self._places = scheduler.ranks, [*_places(), *more]
        self._generator = torch.default_generator
        self._caller = Rank(scheduler, -1)  # stands for the caller of simulate()
        self._caller.environ = os.environ._data  # type: ignore[attr-defined]
        for rank in self._ranks:
            names = rendezvous.torchrun_names(rank.number, len(self._ranks)).items()
            rank.environ = self._caller.environ | {
                os.environ.encodekey(name): os.environ.encodevalue(value) for name, value in names
            }

    def switch(self, before: Rank | None, rank: Rank | None) -> None:
        """The baton goes from one rank to another; None is the caller of simulate()."""
        (before or self._caller).torch_state = self._generator.get_state()
        following = rank or self._caller
        if following.torch_state is not None:
            self._generator.set_state(following.torch_state)
        compat.swap_environ(following.environ)
        self.modules.swap(before or self._caller, following)

    def enter(self, rank: Rank) -> None:
        """First thing in a rank's own thread."""
        context.install(rank, thread_only=True)
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
            self.modules.put_aside()
            yield
        finally:
            self.modules.put_back()
            for owner, name, original in originals:
                if original is _INHERITED:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
            torch.set_num_threads(threads)
            self._generator.set_state(state)
            compat.swap_environ(self._caller.environ)

    def output(self) -> str:
        """What all ranks printed, rank by rank, each line with its [rank]."""
        return "".join(_shown(rank) for rank in self._ranks)


# ---- what is replaced --------------------------------------------------------------------------

Replace = Callable[[Any], Any]  # from the original to what stands in its place
Place = tuple[Any, str, Replace]
_INHERITED = object()


@functools.cache
def _places() -> list[Place]:
    """Owner, name and replacement of everything that is replaced: the same in every simulation."""

    def clock(scale: float, kind: type) -> Replace:
        return for_ranks(lambda rank: kind(rank.scheduler.read_clock() * scale))

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
    # os.environ tells C of what is set in it, whose environment is one for all ranks
    out += [(os, name, for_ranks(lambda *_: None)) for name in ("putenv", "unsetenv")]
    no_cuda = "has no GPU: use course_lib.device(), which is the CPU here, or run(backend='nccl')"
    out.append((torch.cuda, "_lazy_init", for_ranks(_refuse(no_cuda))))
    return [*out, *_group_places(), (sys, "argv", lambda _: arguments()),
            (sys, "stdout", _Pages), (sys, "stderr", _Pages)]  # fmt: skip


def _group_places() -> list[Place]:
    """What forms a default group, and the stores in which ranks may meet before that."""
    out: list[Place] = [(owner, "init_process_group", _init) for owner in (dist, compat.c10d)]
    out += [(*place, lambda original: original) for place in compat.LEFT_BY_INIT]
    out += [(dist, name, for_ranks(make)) for name, make in store.MAKERS.items()]
    out.append((*rendezvous.CREATE_STORE, for_ranks(_meeting_place)))
    return [*out, (*compat.MAKE_GROUP, for_ranks(_form_group))]


def _init(original: Any) -> Any:
    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        rank = current()
        if rank is not None and rank.groups.formed_for(rank) and dist.is_initialized():
            raise ValueError(rendezvous.formed_already("simulate()"))
        original(*args, **kwargs)

    return init_process_group


def _meeting_place(rank: Rank, *_: Any, **__: Any) -> Any:
    """Who has no store of their own has nothing to look up in ours: the world is there."""
    return compat.store()


def _form_group(
    rank: Rank, size: int, asked: int, _ranks: Any, backend: Any, found: Any, *_: Any, **__: Any
) -> Any:
    rendezvous.check_place(rank.number, len(rank.scheduler.ranks), asked, size)
    group = rank.groups.form_again(rank, str(backend))
    compat.add_group(group, {r: r for r in range(size)})
    return group, found


def _sleep(rank: Rank, seconds: float) -> None:
    if not 0 <= seconds < math.inf:
        raise ValueError(f"sleep({seconds!r}): give a time in seconds, zero or more")
    scheduler = rank.scheduler
    scheduler.check(rank)
    scheduler.spend(rank, seconds)


def for_ranks(replacement: Callable[..., Any]) -> Replace:
    """A function that is ``replacement(rank, …)`` in a rank's thread, the original elsewhere."""

    @functools.lru_cache(maxsize=4)  # a hundred of them would cost each simulation a millisecond
    def replace(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            rank = current()
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
    generators = rank.generators
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
        return rank.pages.write(text)

    def flush(self) -> None:
        if current() is None:
            self._original.flush()

    def writable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _shown(rank: Rank) -> str:
    text = rank.pages.getvalue()
    lines = text[:MOST_OUTPUT].splitlines()
    if len(text) > MOST_OUTPUT:
        lines.append(f"… {MOST_OUTPUT:,} of {len(text):,} characters shown")
    return "".join(f"[{rank.number}] {line}\n" for line in lines)
