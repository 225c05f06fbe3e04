"""What is tried on this machine, and what to do where it fails: one line each in PROBES.

A probe is a function that tries something for real and says in a few words what it found, or
raises: what it raises is the problem. Only probes that are *needed* count for the exit code:
without the others a lesson shows less, and runs.

This file imports nothing but Python's own library before a probe asks for it, so that it can say
what is wrong with an environment in which nothing can be imported.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import mmap
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 11)
RUN_SECONDS = 60.0
NCCL_SECONDS = 120.0  # the first communicator on a cold machine
SLOW_SECONDS = 5.0  # in which a name server that does not answer has given up
OPEN_FILES = 256  # three worlds of a dozen ranks, and what Jupyter has open
PROCESSES = 256  # ranks have a handful of threads each, and threads count
MEMORY = 2 << 30
DISK = 256 << 20
SHARED_MEMORY = 256 << 20
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Probe(NamedTuple):
    """Something to try, and what to do where it fails. It makes no sense ``after`` another has
    failed, whose remedy comes first.
    """

    name: str
    look: Callable[[], str]
    remedy: str
    needed: bool = True
    after: str = ""


class Finding(NamedTuple):
    """What came of a probe: ``state`` is "ok", "note" or "MISSING"."""

    name: str
    state: str
    text: str
    remedy: str = ""


class Problem(Exception):
    """What a probe found, where it found too little."""


def examine(probe: Probe, states: Mapping[str, str] | None = None) -> Finding:
    """Try one probe. Whatever it raises becomes a finding; what ranks print is left out.

    ``states`` has what came of the probes before it, by name.
    """
    failed = "MISSING" if probe.needed else "note"
    if (states or {}).get(probe.after, "ok") != "ok":
        return Finding(probe.name, failed, "not tried", f"mend {probe.after} first")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return Finding(probe.name, "ok", probe.look())
    except Exception as error:
        return Finding(probe.name, failed, _first_line(error), probe.remedy)


# C++ says where in its own sources it found out: "[enforce fail at /…/device.cc:84] ifa …".
_IN_SOURCES = re.compile(r"\[enforce fail at [^\]]*\] ")


def _first_line(error: Exception) -> str:
    lines = _IN_SOURCES.sub("", str(error)).strip().splitlines()
    if not lines:
        return type(error).__name__
    return lines[0] if isinstance(error, Problem) else f"{type(error).__name__}: {lines[0]}"


# ---- what is installed --------------------------------------------------------------------------


def python() -> str:
    if sys.version_info < OLDEST_PYTHON:
        raise Problem(f"{sys.version.split()[0]} is too old")
    return f"{sys.version.split()[0]} in {sys.prefix}"


def torch_itself() -> str:
    import torch

    if _numbers(torch.__version__) < OLDEST_TORCH:
        raise Problem(f"{torch.__version__} is too old")
    if not torch.distributed.is_available():
        raise Problem(f"{torch.__version__} was built without torch.distributed")
    return torch.__version__


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in version.split("+")[0].split(".")[:2])


def importable(name: str) -> Callable[[], str]:
    """A probe that imports a package: some are installed and broken, as a torchvision beside
    another torch than its own.
    """

    def look() -> str:
        module = importlib.import_module(name)
        return str(getattr(module, "__version__", "there"))

    return look


def installed(name: str) -> Callable[[], str]:
    """A probe that asks for a package's version without importing it."""

    def look() -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise Problem("not installed") from None

    return look


def browser() -> str:
    names = (os.environ["CHROMIUM"],) if os.environ.get("CHROMIUM") else BROWSERS
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise Problem("none found, which only the tests of JupyterLab need")
    return found


# ---- ranks --------------------------------------------------------------------------------------


def add_up() -> float:
    """On every rank: the sum of all ranks' numbers, counted from 1."""
    import torch
    import torch.distributed as dist

    from course_lib import device

    x = torch.tensor([dist.get_rank() + 1.0], device=device())
    dist.all_reduce(x)
    return x.item()


def add_up_by_hand() -> float:
    """The same in a process that was given what torchrun gives."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return add_up()


def _sum_is_right(done: Any) -> None:
    n = done.world_size
    if done.results != [n * (n + 1) / 2] * n:
        raise Problem(f"the all_reduce over {n} ranks came back wrong: {done.results}")


def gloo() -> str:
    from course_lib import run

    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        _sum_is_right(run(add_up, world_size=2, timeout=RUN_SECONDS))
        seconds.append(time.perf_counter() - start)
    return f"2 ranks did an all_reduce: {seconds[0]:.1f} s at first, then {seconds[1]:.2f} s"


def rendezvous() -> str:
    from course_lib import run

    start = time.perf_counter()
    _sum_is_right(run(add_up_by_hand, world_size=2, init=False, timeout=RUN_SECONDS))
    seconds = time.perf_counter() - start
    if seconds > SLOW_SECONDS:
        raise Problem(f"2 ranks took {seconds:.0f} s to find one another as under torchrun")
    return f"2 ranks found one another as under torchrun, in {seconds:.1f} s"


def recording() -> str:
    from course_lib import run

    ops = [event.op for event in run(add_up, world_size=2, timeout=RUN_SECONDS).trace.events]
    if ops != ["all_reduce"] * 2:
        raise Problem(f"two ranks made one all_reduce each, and the trace shows {ops}")
    return "what ranks say to one another is written down"


def simulation() -> str:
    from course_lib import simulate
    from course_lib.simulated import compat

    if why := compat.missing():
        raise Problem(why)
    _sum_is_right(simulate(add_up, world_size=8))
    return "8 simulated ranks did an all_reduce"


def nccl() -> str:
    import torch
    import torch.distributed as dist

    from course_lib import run

    if not dist.is_nccl_available():
        raise Problem("this torch was built without NCCL")
    version = ".".join(map(str, torch.cuda.nccl.version()))
    gpus = torch.cuda.device_count()
    if not gpus:
        raise Problem(f"NCCL {version} is built in; no GPU is visible, and no lesson needs one")
    _sum_is_right(run(add_up, backend="nccl", timeout=NCCL_SECONDS))
    names = sorted({torch.cuda.get_device_name(n) for n in range(gpus)})
    return f"{version}, {gpus} × {', '.join(names)}: an all_reduce over all of them"


# ---- what ranks need of the system --------------------------------------------------------------


def loopback() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address, timeout=5) as here:
            server.settimeout(5)
            there, _ = server.accept()
            with there:
                here.sendall(b"?")
                there.settimeout(5)
                if there.recv(1) != b"?":
                    raise Problem("a byte was lost on its way over 127.0.0.1")
    return "a TCP port on 127.0.0.1, and a byte sent through it"


def nameless_files() -> str:
    from course_lib.ranks.log import nameless_file

    size = 1 << 20
    fd = nameless_file("doctor")
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            os.ftruncate(fd, size)
        with mmap.mmap(fd, size) as memory:
            memory[-1:] = b"!"
    finally:
        os.close(fd)
    return "in memory" if hasattr(os, "memfd_create") else f"in {tempfile.gettempdir()}"


def temporary_files() -> str:
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 4096)
    return f"{tempfile.gettempdir()}, {_enough(tempfile.gettempdir(), DISK)} free"


def shared_memory() -> str:
    if not os.path.isdir("/dev/shm"):
        return "not a folder on this system"
    return f"/dev/shm, {_enough('/dev/shm', SHARED_MEMORY)} free"


def _enough(folder: str, least: int) -> str:
    free = shutil.disk_usage(folder).free
    if free < least:
        raise Problem(f"{folder} has {_size(free)} free, and {_size(least)} are wanted")
    return _size(free)


def _size(nbytes: float) -> str:
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 1 << 30 else f"{nbytes / 2**20:.0f} MiB"


def open_files() -> str:
    import resource

    return _limit(resource.getrlimit(resource.RLIMIT_NOFILE)[0], OPEN_FILES)


def processes() -> str:
    import resource

    limits = [resource.getrlimit(resource.RLIMIT_NPROC)[0]]
    limits = [n for n in limits if n != resource.RLIM_INFINITY]
    if (most := _cgroup("pids.max")) is not None:
        limits.append(most - (_cgroup("pids.current") or 0))
    return _limit(min(limits, default=-1), PROCESSES)


def _limit(number: int, least: int) -> str:
    if number < 0:
        return "no limit"
    if number < least:
        raise Problem(f"at most {number}, and {least} are wanted")
    return f"at most {number:,}"


def memory() -> str:
    free = [n for n in (_available(), _left_in_cgroup()) if n is not None]
    if not free:
        return "this system does not say how much is free"
    if min(free) < MEMORY:
        raise Problem(f"{_size(min(free))} free, and {_size(MEMORY)} are wanted")
    return f"{_size(min(free))} free"


def _available() -> int | None:
    with contextlib.suppress(FileNotFoundError), open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def _left_in_cgroup() -> int | None:
    most, used = _cgroup("memory.max"), _cgroup("memory.current")
    return None if most is None or used is None else most - used


def _cgroup(name: str) -> int | None:
    """A number that a container's limits have, or None where there is none."""
    try:
        text = Path("/sys/fs/cgroup", name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def cores() -> str:
    number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if number == 1:
        raise Problem("1: ranks take turns on it")
    return str(number)


_INSTALL = "pip install -r requirements.txt"
PROBES = (
    Probe("Python", python, "install Python 3.11 or later, then: make clean lab"),
    Probe("torch", torch_itself, f"{_INSTALL}, or for a CPU alone: make lab TORCH=cpu"),
    Probe("torchvision", importable("torchvision"),
          "it has to be built for this torch: install the pair that requirements.txt names",
          after="torch"),
    Probe("numpy", importable("numpy"), _INSTALL),
    Probe("matplotlib", importable("matplotlib"), _INSTALL),
    Probe("cloudpickle", importable("cloudpickle"), _INSTALL),
    Probe("JupyterLab", installed("jupyterlab"), _INSTALL),
    Probe("ipykernel", installed("ipykernel"), _INSTALL),
    Probe("nbval", installed("nbval"), f"to grade and to test: {_INSTALL}", needed=False),
    Probe("browser", browser, "install chromium, or name one in CHROMIUM", needed=False),
    Probe("loopback", loopback, "bring the loopback interface up: ip link set lo up"),
    Probe("nameless files", nameless_files,
          "ranks write what they do into nameless files: allow memfd_create, free some memory",
          after="torch"),
    Probe("temporary files", temporary_files,
          "free some space there, or name another folder in TMPDIR"),
    Probe("shared memory", shared_memory,
          "DataLoader workers need it: start a container with --shm-size=1g", needed=False),
    Probe("open files", open_files, "ulimit -n 4096, in the shell that starts JupyterLab"),
    Probe("processes", processes, "raise it: ulimit -u, or a container's --pids-limit"),
    Probe("memory", memory, "close what you do not need, or run fewer ranks", needed=False),
    Probe("cores", cores, "every lesson works; give a container more with --cpus", needed=False),
    Probe("gloo", gloo, "mend what is MISSING above; then unset GLOO_SOCKET_IFNAME if it is set",
          after="torch"),
    Probe("rendezvous", rendezvous,
          "name lookups may be what takes long: see that 127.0.0.1 stands in /etc/hosts",
          after="gloo"),
    Probe("recording", recording,
          "runs work, traces and their pictures stay empty; torch 2.14 or later records",
          needed=False, after="gloo"),
    Probe("simulate", simulation,
          "exercises are checked on real ranks alone; use the torch that requirements.txt names",
          needed=False, after="torch"),
    Probe("NCCL", nccl, "on a machine with NVIDIA GPUs: see that nvidia-smi lists them",
          needed=False, after="torch"),
)  # fmt: skip
