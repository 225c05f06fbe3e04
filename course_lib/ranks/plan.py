"""What is asked of a world, checked before anything is started; and what its ranks find."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from course_lib.errors import CourseError

MOST_RANKS = 64
DEFAULT_RANKS = 4
# torch's TCP store looks up the name of every address it meets, 127.0.0.1 too, and waits for the
# answer: five seconds and more where the name server is out of reach. See resolv.conf(5).
_SHORT_LOOKUPS = "timeout:1 attempts:1"


@dataclass(frozen=True)
class Plan:
    """A world to start; one that was started for an equal plan serves as well."""

    world_size: int
    backend: str
    init: bool  # whether its ranks form their process group before they are given a function


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
    if not hasattr(dist.ProcessGroup, "register_pre_hook"):
        raise CourseError(f"run() needs torch 2.14 or later, and this is torch {torch.__version__}")
    backend = (backend or "gloo").lower()
    if backend not in ("gloo", "nccl"):
        raise CourseError(f"backend={backend!r} is not one that run() starts: use 'gloo' or 'nccl'")
    gpus = _count_gpus() if backend == "nccl" else 0
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
    return Plan(size, backend, init)


def _count_gpus() -> int:
    if not dist.is_nccl_available():
        raise CourseError(f"this torch ({torch.__version__}) has no NCCL: use backend='gloo'")
    gpus = torch.cuda.device_count()
    if gpus == 0:
        raise CourseError(
            "backend='nccl' needs a GPU, and this machine shows none: use backend='gloo'"
        )
    return gpus


# ---- what ranks find -----------------------------------------------------------------------------


def host_store() -> dist.TCPStore:
    """For a function that calls ``init_process_group`` itself, what torchrun would give it: a TCP
    store that is already hosted, on a port that the system chose.

    A world that forms its group itself meets in a file without a name instead, which takes no port
    and asks no name server.
    """
    usual = os.environ.get("RES_OPTIONS")
    os.environ.setdefault("RES_OPTIONS", _SHORT_LOOKUPS)
    try:
        return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    finally:
        if usual is None:
            del os.environ["RES_OPTIONS"]


def rank_environment() -> dict[str, str]:
    """This process's environment, with what keeps ranks on one machine quick.

    A world that was started in another environment cannot be used any more.
    """
    environ = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    environ.setdefault("OMP_NUM_THREADS", "1")
    environ.setdefault("RES_OPTIONS", _SHORT_LOOKUPS)
    environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environ


def torchrun_env(rank: int, world_size: int, port: int) -> dict[str, str]:
    """What torchrun sets for a rank of a one-node job, so that ``env://`` works."""
    environ = {"RANK": str(rank), "LOCAL_RANK": str(rank),
               "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size)}  # fmt: skip
    if port:
        environ |= {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
        }  # fmt: skip
    return environ
