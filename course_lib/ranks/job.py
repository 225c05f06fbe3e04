"""What is asked of a world, checked before anything is started.

Everything that could be wrong with the arguments of ``run`` is found here, in the notebook's own
process, and told in one line that says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from course_lib.errors import CourseError

MOST_RANKS = 64
DEFAULT_RANKS = 4
SPARE_SECONDS = 60.0


@dataclass(frozen=True)
class Plan:
    """A world to start: how many ranks, how they talk, how long they may take."""

    world_size: int
    backend: str
    timeout: float
    init: bool
    record: bool

    def same_world(self, other: Plan) -> bool:
        """Whether ranks that were started for one of the two serve the other."""
        return replace(self, timeout=other.timeout, record=other.record) == other


def plan(
    world_size: int | None, backend: str | None, timeout: float, init: bool, record: bool
) -> Plan:
    """Fill in the defaults; raises CourseError for a world that cannot be."""
    backend = (backend or "gloo").lower()
    if backend not in ("gloo", "nccl"):
        raise CourseError(f"backend={backend!r} is not one that run() starts: use 'gloo' or 'nccl'")
    if not (isinstance(timeout, (int, float)) and 0 < timeout < float("inf")):
        raise CourseError(f"timeout={timeout!r}: give a number of seconds above zero")
    size = _nccl_size(world_size) if backend == "nccl" else _size(world_size, DEFAULT_RANKS)
    return Plan(size, backend, float(timeout), init, record)


def _size(world_size: Any, default: int) -> int:
    if world_size is None:
        return default
    if not isinstance(world_size, int) or isinstance(world_size, bool) or world_size < 1:
        raise CourseError(
            f"world_size={world_size!r}: a world needs a whole number of ranks, 1 or more"
        )
    if world_size > MOST_RANKS:
        raise CourseError(
            f"world_size={world_size} asks for {world_size} processes, and run() starts at most "
            f"{MOST_RANKS}: use simulate(fn, world_size={world_size}) for larger worlds"
        )
    return world_size


def _nccl_size(world_size: Any) -> int:
    if not dist.is_nccl_available():
        raise CourseError(f"this torch ({torch.__version__}) has no NCCL: use backend='gloo'")
    gpus = torch.cuda.device_count()
    if gpus == 0:
        raise CourseError(
            "backend='nccl' needs a GPU, and this machine shows none: use backend='gloo'"
        )
    size = _size(world_size, gpus)
    if size > gpus:
        raise CourseError(
            f"world_size={size} asks for {size} GPUs, this machine has {gpus}: "
            f"use backend='gloo' or world_size={gpus}"
        )
    return size


# torch's TCP store looks up the name of every address it meets, 127.0.0.1 too, and waits for the
# answer: five seconds and more where the name server is out of reach.
_SHORT = "timeout:1 attempts:1"


@contextmanager
def short_lookups() -> Iterator[None]:
    """Give up on name servers after a second (see resolv.conf(5)), unless told otherwise."""
    told = "RES_OPTIONS" in os.environ
    os.environ.setdefault("RES_OPTIONS", _SHORT)
    try:
        yield
    finally:
        if not told:
            del os.environ["RES_OPTIONS"]


def surroundings() -> dict[str, str]:
    """This process's environment, with what keeps ranks on one machine quick.

    A world that was started in other surroundings cannot be used any more.
    """
    environ = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    environ.setdefault("OMP_NUM_THREADS", "1")
    environ.setdefault("RES_OPTIONS", _SHORT)
    environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environ


def spare_seconds() -> float:
    """For how long a spare world is kept: ``COURSE_LIB_SPARE``, 60 by default, 0 for none."""
    value = os.environ.get("COURSE_LIB_SPARE", "")
    try:
        return max(0.0, float(value or SPARE_SECONDS))
    except ValueError:
        raise CourseError(f"COURSE_LIB_SPARE={value!r}: give seconds, 0 for none") from None


def identity(rank: int, world_size: int, port: int) -> dict[str, str]:
    """What torchrun sets for a rank of a one-node job, so that ``env://`` works."""
    environ = {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size), "TORCHELASTIC_RUN_ID": "course_lib",
        "TORCHELASTIC_RESTART_COUNT": "0", "COURSE_LIB_SPARE": "0",
    }  # fmt: skip
    if port:
        environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                    "TORCHELASTIC_USE_AGENT_STORE": "True"}  # fmt: skip
    return environ
