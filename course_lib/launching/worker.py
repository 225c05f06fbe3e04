"""What happens inside a rank's process: ``main`` is its whole life.

A rank stays until it is killed, because one that exits early can cut off a message that another
rank has not read yet.
"""

from __future__ import annotations

import builtins
import ctypes
import faulthandler
import functools
import io
import os
import pickle
import re
import select
import signal
import sys
import time
import types
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing import process, util
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.multiprocessing

from course_lib import context, rendezvous, terminal
from course_lib.diagnosis.failure import RankOutcome
from course_lib.launching.plan import Plan, RankJob
from course_lib.pickling import CannotTravel, unpack_call
from course_lib.recording import recorder, wrappers
from course_lib.recording.log import Writer
from course_lib.user_code import name_cells

# What the fork server may import for all ranks: not the compiler, which starts processes of its own
# when it is imported.
_SHARED = re.compile(r"(torch(vision)?|course_(lib|sim|check|tools|exercises))\.(?!_inductor|_C)")
GROUP_TIMEOUT = timedelta(days=7)  # never: the notebook keeps the time
LARGEST_RESULT = 1 << 28  # bytes
_hosted: list[dist.TCPStore] = []  # the store of a rank whose function forms the group itself


def prepare() -> None:
    """Called in the fork server, before any rank is forked."""
    wrappers.install()
    builtins.input = sys.breakpointhook = lambda *_, **__: terminal.no_keyboard()
    for name in ("spawn", "start_processes"):
        setattr(torch.multiprocessing, name, _wrap_spawn(getattr(torch.multiprocessing, name)))


def _wrap_spawn(original: Callable) -> Callable:
    """``mp.spawn`` that says what to do instead if it is given a function from a cell, which
    processes that it starts could not import.
    """

    @functools.wraps(original)
    def spawn(fn: Callable, *args: Any, **kwargs: Any) -> Any:
        try:
            pickle.dumps(fn)
        except (pickle.PicklingError, AttributeError, TypeError):
            terminal.no_spawn(fn)
        os.environ.pop(rendezvous.AGENT_STORE, None)  # those ranks host a store of their own
        return original(fn, *args, **kwargs)

    return spawn


def main(rank: int, fds: Sequence[int], scratch: str) -> NoReturn:
    """The life of a rank, on the files that the notebook has opened for it."""
    control_fd, output_fd, log_fd, stack_fd, store_fd, orders_fd = fds
    inherited = set(sys.modules)
    os.setsid()  # own session and group: killed as one, and deaf to the terminal's Ctrl-C
    _keep_sockets_in(scratch)
    sys.modules["__main__"] = types.ModuleType("__main__")  # where what cells define lives
    _redirect(output_fd)
    faulthandler.enable(file=stack_fd)
    faulthandler.register(signal.SIGUSR1, file=stack_fd)
    log = Writer(log_fd)
    # The first of the orders is the Plan. The second, the RankJob, is there once a byte has come.
    with open(f"/proc/self/fd/{orders_fd}", "rb") as orders:
        plan: Plan = pickle.load(orders)
        device = f"cuda:{rank}" if plan.backend == "nccl" else "cpu"
        try:
            _set_up(plan, rank, device, store_fd)
        except Exception as error:
            _send_outcome(_make_failure(rank, f"{type(error).__name__}: {error}"), log, control_fd)
        # It records nothing yet: forming the group is no part of what the function calls.
        recording = recorder.Recorder(log, device)
        log.append("flag", "ready")
        os.write(control_fd, b"!")
        if not select.select([control_fd], [], [], plan.standby or None)[0]:
            os._exit(0)  # nobody wants this world
        job: RankJob = pickle.load(orders)
    outcome = _work(rank, device, job, recording)
    outcome.imports = [m for m in list(sys.modules) if m not in inherited and _SHARED.match(m)]
    _send_outcome(outcome, log, control_fd)


def _send_outcome(outcome: RankOutcome, log: Writer, control_fd: int) -> NoReturn:
    log.append("outcome", pickle.dumps(outcome))
    os.write(control_fd, b"!")
    while True:
        signal.pause()


def _keep_sockets_in(folder: str) -> None:
    """Have ``multiprocessing`` keep its files there, here and in our children; the folder is made
    when it is first needed, and the fork server removes it.
    """

    def get_temp_dir() -> str:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        process.current_process()._config["tempdir"] = folder  # type: ignore[attr-defined]
        return folder

    util.get_temp_dir = get_temp_dir


def _redirect(output_fd: int) -> None:
    """Print line by line into the notebook's pipe, standard error too."""
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
        os.dup2(output_fd, stream.fileno())
    os.close(output_fd)


def _set_up(plan: Plan, rank: int, device: str, store_fd: int) -> None:
    """Make this process a rank: environment, store, process group, seeds."""
    os.environ.clear()
    os.environ.update(plan.environ | rendezvous.torchrun_names(rank, plan.world_size))
    dist.set_debug_level_from_env()  # which torch has read in the fork server
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if device != "cpu":
        torch.cuda.set_device(device)
    store = dist.FileStore(f"/proc/self/fd/{store_fd}", plan.world_size)
    place: dict[str, Any] = {"store": store, "rank": rank, "world_size": plan.world_size}
    setattr(*rendezvous.CREATE_STORE, rendezvous.meet_in(**place))
    if plan.init:
        gpu = None if device == "cpu" else torch.device(device)
        dist.init_process_group(plan.backend, timeout=GROUP_TIMEOUT, device_id=gpu, **place)
        wrappers.formed = dist.group.WORLD
        # The first call takes longest: it connects the ranks.
        dist.all_reduce(torch.zeros(1, device=device))
    else:
        _host_store(store, rank)
    context.seed_rank(rank)


def _host_store(store: dist.Store, rank: int) -> None:
    """As torchrun does, for a function that speaks to the store itself."""
    if rank == 0:
        _hosted.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        store.set("port", str(_hosted[0].port))
    os.environ["MASTER_PORT"] = store.get("port").decode()
    os.environ[rendezvous.AGENT_STORE] = "True"


def _work(rank: int, device: str, job: RankJob, recording: recorder.Recorder) -> RankOutcome:
    """Call the function as its job says; returns how that ended."""
    os.chdir(job.cwd)
    sys.path[:] = job.path
    sys.argv[:] = job.argv
    terminal.set_loggers(job.loggers)
    name_cells(job.cells)
    recording.t0 = job.t0
    if job.record:
        recorder.begin(recording)
    context.install(recording)
    began = 0.0
    try:
        function, *args = unpack_call(job.call)
        began = time.perf_counter()
        result = function(*args)
        at = time.perf_counter()
        outcome = RankOutcome.of_result(rank, at, result, function, LARGEST_RESULT)
    except CannotTravel as error:
        advice = "pass plain data, and create such objects inside the function"
        outcome = _make_failure(rank, f"could not unpickle {error.name} ({error.why}): {advice}")
    except BaseException as error:  # sys.exit(), too, as scripts end: sys.exit(main())
        outcome = RankOutcome.of_exception(rank, time.perf_counter(), error)
        outcome.exception = None  # it may not be able to travel: its words say as much
    outcome.began = began
    recording.write_done_futures()
    if device != "cpu" and dist.is_initialized() and outcome.ended_well:
        torch.cuda.synchronize()
        dist.destroy_process_group()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.CDLL(None).fflush(None)  # what C++ has printed
    return outcome


def _make_failure(rank: int, message: str) -> RankOutcome:
    """The outcome of a rank that could not begin, whose message says it all."""
    return RankOutcome(rank, "raised", time.perf_counter(), message=message)
