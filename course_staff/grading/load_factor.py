"""How much longer everything takes while others compute: limits of time are stretched by it."""

from __future__ import annotations

import os
from pathlib import Path

MOST = 10.0
_RUNNABLE = Path("/proc/loadavg")


def load_factor() -> float:
    """By how much everything takes longer than on an idle machine: now and in the last minute."""
    lately = os.getloadavg()[0]
    try:  # how many threads run or want to, without the one that asks
        now = int(_RUNNABLE.read_text().split()[3].partition("/")[0]) - 1.0
    except OSError:  # not Linux
        now = lately
    return min(MOST, max(1.0, max(now, lately) / (os.cpu_count() or 1)))
