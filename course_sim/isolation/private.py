"""What a process has to itself, given to threads: each rank its own.

    function, globals, arguments    a pickled copy for each rank
    torch's random generator        one for all: its state is swapped when the baton changes hands
    random's and numpy.random's     functions that ask the calling rank's own generator
    the user's own modules          each rank imports them anew: see modules.py
    what installed ones keep        swapped, where it changes: see packages.py
    os.environ                      the mapping behind it is swapped
    torch's settings, the folder    swapped: default dtype, determinism, …: see compat.SETTINGS
    time                            sleep spends, and the clocks show, virtual time; dates are real
    logging                         levels and handlers of its own: see log_settings.py
    sys.stdout, sys.stderr          written to the rank's own pages
    processes, threads, signals     refused; a keyboard, too, and CUDA, unless cuda=True asks for it

Note [Replaced in the live kernel]. All of it is put in place when a simulation starts and taken
back when it ends, in the process of the notebook itself, whose other threads go on meanwhile: the
kernel's heartbeat, a progress bar, a timer. So each replacement asks ``current()`` whether a rank's
thread calls, and is the original for all others. A row for a class or a constant, which cannot ask,
has to be right for everybody. What the simulator itself needs of clocks and threads it has bound
before (``_start`` in scheduler.py, ``_perf_counter`` here), or uses in threads that are no ranks.
tests/course_sim/test_privacy.py says what breaks: a thread that is no rank, the state afterwards,
and every clock; test_rules.py compares the signatures.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import io
import math
import multiprocessing.process
import os
import signal
import subprocess
import sys
import threading
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.rpc
import torch.multiprocessing

from course_lib import context, rendezvous
from course_lib.terminal import arguments, no_keyboard, no_spawn
from course_sim.isolation import compat, log_settings, store
from course_sim.isolation.modules import Modules
from course_sim.isolation.packages import Environ, Packages
from course_sim.rank import Rank, current
from course_sim.scheduler import Scheduler

_PROCESSES = (
    "fork forkpty system posix_spawn posix_spawnp popen _exit abort "
    "execv execve execl execlp execvp execvpe"
)
_SIGNALS = "alarm setitimer pause sigwait sigtimedwait raise_signal pthread_kill set_wakeup_fd"
MOST_OUTPUT = 100_000  # characters shown of one rank


class Privacy:
    """Swaps what is private when the baton changes hands, and puts everything back at the end."""

    def __init__(
        self,
        scheduler: Scheduler,
        modules: dict[str, Any],
        more: Sequence[Patch] = (),
        here: int = 0,
    ) -> None:
        """``modules``: the user's own, which each rank imports for itself. ``here``: how many ranks
        a machine holds, if not all.
        """
        self._ranks, self._patches = scheduler.ranks, [*_patches(), *more]
        self._generator = torch.default_generator
        self._caller = Rank(scheduler, -1)  # stands for the caller of simulate()
        self.packages = Packages(self._caller)
        self.modules = Modules(modules, self.packages)
        self._caller.environ = os.environ._data  # type: ignore[attr-defined]
        self._caller.settings = settings = compat.settings()
        for rank in self._ranks:
            rank.settings, rank.modules = settings, dict(self.modules.main)
            names = rendezvous.torchrun_names(rank.number, len(self._ranks), here).items()
            rank.environ = Environ(self._caller.environ)
            for name, value in names:
                rank.environ[os.environ.encodekey(name)] = os.environ.encodevalue(value)

    def switch(self, before: Rank | None, rank: Rank | None) -> None:
        """The baton goes from one rank to another; None is the caller of simulate()."""
        leaving, following = before or self._caller, rank or self._caller
        leaving.torch_state = self._generator.get_state()
        if following.torch_state is not None:
            self._generator.set_state(following.torch_state)
        compat.swap_environ(following.environ)
        leaving.settings = compat.change_settings(following.settings)
        self.modules.swap(leaving, following)
        self.packages.swap(leaving, following)

    def enter(self, rank: Rank) -> None:
        """Called first in a rank's own thread."""
        context.install(rank, thread_only=True)
        context.seed_rank(rank.number)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Everything is replaced inside."""
        threads = torch.get_num_threads()
        state = self._generator.get_state()
        # What is replaced twice has one original.
        originals = {
            (owner, name): vars(owner).get(name, _INHERITED) for owner, name, _ in self._patches
        }
        try:
            for owner, name, replace in self._patches:
                setattr(owner, name, replace(getattr(owner, name, None)))
            torch.set_num_threads(1)
            with self.modules.in_place():
                yield
        finally:
            for (owner, name), original in originals.items():
                if original is _INHERITED:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
            torch.set_num_threads(threads)
            self._generator.set_state(state)
            compat.swap_environ(self._caller.environ)
            compat.change_settings(self._caller.settings)
            self.packages.restore()

    def output(self) -> str:
        """What all ranks printed, rank by rank, each line with its [rank]."""
        return "".join(_show_output(rank) for rank in self._ranks)


# ---- what is replaced --------------------------------------------------------------------------

Replace = Callable[[Any], Any]  # from the original to what stands in its place
Patch = tuple[Any, str, Replace]  # owner, name, and what makes the replacement
_INHERITED = object()


def for_ranks(replacement: Callable[..., Any]) -> Replace:
    """A function that is ``replacement(rank, …)`` in a rank's thread, the original elsewhere."""

    @functools.lru_cache(maxsize=64)  # a hundred of them would cost each simulation a millisecond
    def replace(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            rank = current()
            return original(*args, **kwargs) if rank is None else replacement(rank, *args, **kwargs)

        return functools.wraps(original)(call) if hasattr(original, "__name__") else call

    return replace


def _refuse(what: str) -> Callable[..., Any]:
    """A function that raises in a rank: "a simulated rank" followed by ``what``."""

    def refuse(rank: Rank, /, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"a simulated rank {what}")

    return refuse


def always(answer: Any) -> Callable[..., Any]:
    """A function that has one answer for ranks, whatever it is asked."""
    return lambda rank, /, *_, **__: answer


def _clock(rank: Rank, *_: Any) -> float:
    return rank.scheduler.read_clock()


def _clock_ns(rank: Rank, *_: Any) -> int:
    return int(rank.scheduler.read_clock() * 1e9)


def _sleep(rank: Rank, seconds: float) -> None:
    if not 0 <= seconds < math.inf:
        raise ValueError(f"sleep({seconds!r}): give a time in seconds, zero or more")
    rank.scheduler.spend(rank, seconds)


def _set_handler(rank: Rank, signalnum: int, handler: Any) -> Any:
    """A handler may be set, as for a job that is about to be stopped; nobody sends a signal."""
    before, rank.handlers[signalnum] = _get_handler(rank, signalnum), handler
    return before


def _get_handler(rank: Rank, signalnum: int) -> Any:
    return rank.handlers.get(signalnum, signal.SIG_DFL)


_init_process_group = dist.init_process_group


def _init(rank: Rank, /, *args: Any, **kwargs: Any) -> None:
    if rank.groups.has_default_group(rank) and dist.is_initialized():
        raise ValueError(rendezvous.already_formed_text("simulate()"))
    _init_process_group(*args, **kwargs)


def _make_store(rank: Rank, /, *_: Any, **__: Any) -> Any:
    """The group already exists; a dummy store is enough."""
    return compat.store()


def _form_group(
    rank: Rank, size: int, asked: int, _ranks: Any, backend: Any, found: Any, *_: Any, **how: Any
) -> Any:
    """What ``init_process_group`` makes a group with: the rank joins the simulated one."""
    rendezvous.check_place(rank.number, len(rank.scheduler.ranks), asked, size)
    channel = rank.groups.form_again(rank, str(backend))
    group = rank.make_end("0", channel, how.get("timeout"))
    compat.add_group(group, {r: r for r in range(size)})
    return group, found


_register_group: Any = getattr(*compat.REGISTER_GROUP, None)


def _register(rank: Rank, pg: Any, *args: Any, **how: Any) -> None:
    """torch would write down that a group of NCCL takes no tensors of the CPU, where ours lie."""
    _register_group(pg, *args, **how | {"backend_config": compat.backends_of(pg)})


_NO_PROCESS = _refuse(
    "cannot start or end processes: use run(), where ranks are processes, or do without, as with "
    "num_proc=None"
)
_NO_THREAD = _refuse("cannot start threads: use run(), where ranks are processes")
_NO_SIGNAL = _refuse("gets and sends no signals: use run(), where ranks are processes")
_NO_CUDA = _refuse(
    "has no GPU: use course_lib.device(), which is the CPU here, or run(backend='nccl')"
)
_NO_RPC = _refuse("has no RPC: use run(), where ranks are processes")
Rows = list[tuple[Any, str, Callable[..., Any]]]  # owner, names, what these do in a rank
CONFINED: Rows = [  # these hold in a graded answer, too, which is a process of its own
    (time, "sleep", _sleep),
    (time, "time monotonic perf_counter process_time thread_time clock_gettime", _clock),
    (time, "time_ns monotonic_ns perf_counter_ns process_time_ns thread_time_ns", _clock_ns),
    (time, "clock_gettime_ns", _clock_ns),
    (timeit, "default_timer", _clock),
    (os, _PROCESSES, _NO_PROCESS),
    (subprocess.Popen, "__init__", _NO_PROCESS),
    (multiprocessing.process.BaseProcess, "start", _NO_PROCESS),
]
_IN_RANKS: Rows = [
    *CONFINED,
    (threading.Thread, "start", _NO_THREAD),
    (signal, _SIGNALS, _NO_SIGNAL),
    (os, "kill killpg", _NO_SIGNAL),
    (signal, "signal", _set_handler),
    (signal, "getsignal", _get_handler),
    (builtins, "input", lambda *_, **__: no_keyboard()),
    (sys, "breakpointhook", lambda *_, **__: no_keyboard()),
    (importlib.import_module("pdb"), "set_trace", lambda *_, **__: no_keyboard()),
    # os.environ passes on to C what is set in it; C has one environment for all ranks
    (os, "putenv unsetenv", always(None)),
    (torch.multiprocessing, "spawn start_processes", lambda _, fn=None, *__, **___: no_spawn(fn)),
    # a script that asks for a GPU is told what it would be told on a machine without
    (torch.cuda, "is_available", always(False)),
    (torch.cuda, "device_count", always(0)),
    (torch.cuda, "_lazy_init", _NO_CUDA),
    (torch.accelerator, "is_available", always(False)),
    (torch.accelerator, "device_count", always(0)),
    (torch.accelerator, "current_accelerator", always(None)),
    (torch.distributed.rpc, "init_rpc", _NO_RPC),
    (dist, "TCPStore", store.make_tcp_store),
    (dist, "FileStore", store.make_file_store),
    (dist, "init_process_group", _init),
    (compat.c10d, "init_process_group", _init),
    (*rendezvous.CREATE_STORE, _make_store),
    (*compat.MAKE_GROUP, _form_group),
    (*compat.REGISTER_GROUP, _register),
    (compat.c10d, "_maybe_attach_flight_recorder", lambda *_, **__: None),  # wants a C++ backend
]


@functools.cache
def _patches() -> list[Patch]:
    """Owner, name and replacement of everything that is replaced: the same in every simulation."""
    out = [
        (owner, name, for_ranks(replacement))
        for owner, names, replacement in _IN_RANKS
        for name in names.split()
        if hasattr(owner, name)  # on this system
    ]
    for module, names, make in compat.shared_generators():
        out += [
            (module, name, for_ranks(functools.partial(_draw, make, method)))
            for name, method in names.items()
        ]
    with suppress(ImportError):  # its progress bars start a thread
        out.append((importlib.import_module("tqdm.std").tqdm, "monitor_interval", lambda _: 0))
    out += log_settings.PATCHES
    out += [(*place, lambda original: original) for place in compat.LEFT_BY_INIT]
    return [
        *out,
        (timeit.Timer, "__init__", _replace_timer_init),
        (sys, "argv", lambda _: arguments()),
        (sys, "stdout", _Pages),
        (sys, "stderr", _Pages),
    ]


_perf_counter = time.perf_counter


def _replace_timer_init(original: Any) -> Any:
    """``timeit`` and torch's benchmarks have bound their clock when they were imported."""

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.timer is _perf_counter:
            self.timer = timeit.default_timer

    return init


def _draw(make: type, name: str, rank: Rank, *args: Any, **kwargs: Any) -> Any:
    """Call a function of ``random`` or ``numpy.random`` on the rank's own generator."""
    if make not in rank.generators:  # context.seed_rank seeds it at once
        rank.generators[make] = make()
    return getattr(rank.generators[make], name)(*args, **kwargs)


class _Pages(io.TextIOBase):
    """Standard output that keeps apart what ranks write."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def write(self, text: str) -> int:
        rank = current()
        return (self._original if rank is None else rank.pages).write(text)

    def close(self) -> None:
        """The stream behind it stays as it is."""

    def flush(self) -> None:
        if current() is None:
            self._original.flush()

    def writable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _show_output(rank: Rank) -> str:
    """What one rank printed, its number before each line, up to a limit."""
    text = rank.pages.getvalue()
    lines = text[:MOST_OUTPUT].removesuffix("\n").split("\n") if text else []
    if len(text) > MOST_OUTPUT:
        lines.append(f"… {MOST_OUTPUT:,} of {len(text):,} characters shown")
    return "".join(f"[{rank.number}] {line}\n" for line in lines)
