"""The stores of torch.distributed in simulated ranks: those that name one place share one.

A rank that waits for a key looks again after a while, in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from course_sim.rank import Rank

_FIRST_LOOK, _LONGEST_PAUSE = 1e-4, 1.0  # seconds
_Store: Any = dist.Store


class SharedStore(_Store):
    """One rank's end of a store; ``place`` is a port or a file's name."""

    def __init__(self, rank: Rank, place: object, timeout: timedelta | None) -> None:
        super().__init__()
        self._rank, self._shared = rank, rank.groups.stores[place]
        self.set_timeout(timeout or timedelta(seconds=300))

    def set_timeout(self, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._shared.get(key)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Look again and again, each time after a longer pause."""
        scheduler, seconds = self._rank.scheduler, self._seconds
        if timeout is not None:
            seconds = timeout.total_seconds()
        pause = _FIRST_LOOK
        while not self._shared.check(keys):
            if seconds <= 0:
                raise dist.DistStoreError(f"wait timeout, keys: {', '.join(keys)}")
            scheduler.spend(self._rank, pause)
            seconds, pause = seconds - pause, min(2 * pause, _LONGEST_PAUSE)


def _forward(name: str) -> Callable[..., Any]:
    """A method that waits for nobody."""
    return lambda end, *args: getattr(end._shared, name)(*args)


for _name in ("set", "add", "check", "compare_set", "delete_key", "num_keys"):
    setattr(SharedStore, _name, _forward(_name))


# ---- what stands in ranks for classes of torch.distributed ---------------------------------------


def make_tcp_store(rank: Rank, host_name: str, port: int, *more: Any, **how: Any) -> SharedStore:
    """``more`` may be a world size, whether this is the host, and a timeout."""
    return SharedStore(rank, port, how.get("timeout", more[2] if len(more) > 2 else None))


def make_file_store(rank: Rank, file_name: str, world_size: int = -1) -> SharedStore:
    return SharedStore(rank, file_name, None)
