"""What is asked of a world, checked before anything is started; and the *orders* of its ranks.

Orders are a file that all ranks of a world read. The notebook writes the Plan into it before it has
the ranks forked, and the RankJob before it wakes them. So it never waits until a rank has read.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist

from course_lib.errors import CourseError, NotStarted
from course_lib.terminal import LoggerSettings
from course_lib.versions import old_torch

MOST_RANKS = 64
DEFAULT_RANKS = 4
STANDBY_SECONDS = 60.0


@dataclass(frozen=True)
class Plan:
    """A world to start; one that was started for an equal plan serves as well."""

    world_size: int
    backend: str
    init: bool  # whether its ranks form their process group before they are given a function
    environ: dict[str, str]  # what its ranks have in theirs
    standby: float  # seconds for which its ranks wait for something to do; 0 if no world stands by


class RankJob(NamedTuple):
    """What every rank shall do."""

    call: bytes  # what ``pack_call`` made of the function and its arguments
    t0: float  # time.perf_counter() that counts as zero
    cwd: str
    path: list[str]
    argv: list[str]
    loggers: list[LoggerSettings]
    record: bool
    cells: dict[str, str]  # file name → "cell [7]"


class Deadline:
    """The moment, on time.perf_counter(), at which ``seconds`` will have passed."""

    def __init__(self, seconds: float) -> None:
        if not (isinstance(seconds, (int, float)) and 0 < seconds < float("inf")):
            raise CourseError(f"timeout={seconds!r}: give a number of seconds above zero")
        self.seconds, self.at = seconds, time.perf_counter() + seconds

    @property
    def passed(self) -> bool:
        return time.perf_counter() > self.at


def make_plan(world_size: int | None, backend: str | None, init: bool) -> Plan:
    """Fill in the defaults; raises CourseError for a world that cannot be."""
    if problem := old_torch(torch.__version__):
        raise NotStarted(f"run() cannot start ranks: {problem}")
    _look_at_the_system()
    backend = (backend or "gloo").lower()
    if backend not in ("gloo", "nccl"):
        raise CourseError(f"backend={backend!r} is not one that run() starts: use 'gloo' or 'nccl'")
    if backend == "nccl" and not dist.is_nccl_available():
        raise CourseError(f"this torch ({torch.__version__}) has no NCCL: use backend='gloo'")
    gpus = torch.cuda.device_count() if backend == "nccl" else 0
    if backend == "nccl" and gpus == 0:
        raise CourseError(
            "backend='nccl' needs a GPU, and this machine shows none: use backend='gloo'"
        )
    size = world_size if world_size is not None else gpus or DEFAULT_RANKS
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise CourseError(f"world_size={size!r}: a world needs a whole number of ranks, 1 or more")
    if size > MOST_RANKS:
        raise CourseError(
            f"world_size={size} asks for {size} processes, and run() starts at most "
            f"{MOST_RANKS}: use simulate(fn, world_size={size}) for larger worlds"
        )
    if gpus and size > gpus:
        raise CourseError(
            f"world_size={size} asks for {size} GPUs, this machine has {gpus}: "
            f"use backend='gloo' or world_size={gpus}"
        )
    standby = max(0.0, float(os.environ.get("COURSE_LIB_STANDBY") or STANDBY_SECONDS))
    return Plan(size, backend, init, rank_environment(), standby)


def _look_at_the_system() -> None:
    """Raises NotStarted for what would otherwise keep ranks waiting for one another for minutes."""
    if not os.path.exists("/proc/self/fd"):
        raise NotStarted("ranks need /proc, and there is none: mount -t proc proc /proc")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("127.0.0.1", 9))  # sends nothing: is there a way?
        except OSError as error:
            raise NotStarted(
                f"ranks talk by way of 127.0.0.1, and it cannot be reached ({error.strerror}): "
                "bring the loopback network up, as root: ip link set lo up"
            ) from None


def rank_environment() -> dict[str, str]:
    """This process's environment, with what keeps ranks on one machine quick."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    environ["COURSE_LIB_STANDBY"] = "0"  # a rank keeps no world ready
    environ.setdefault("OMP_NUM_THREADS", "1")
    # torch's TCP store looks up the name of every address it meets, 127.0.0.1 too, and waits for
    # the answer: five seconds and more where the name server is out of reach. See resolv.conf(5).
    environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
    environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environ
