"""Finding what luck hides: buffers that are used while a message still owns them.

    irecv ──────────── wait        the buffer is filled with poison: whoever reads it, reads that
    isend ──────────── wait        the buffer must still hold what was sent, byte for byte

Poison cannot be recognised in what is computed from it, but two kinds can be told apart: see
early_reads.py. They are a positive number and a negative one (for integers the complement, for
True False); both are large, but finite, since ∞/n is ∞ and nobody would see who divides.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch

from course_lib.simulated.isolation import compat
from course_lib.simulated.memory import contents, fill, raw
from course_lib.simulated.rank import Rank
from course_lib.trace import Event

MOST = 8_000  # buffers to fill up to which a program is run a second time


def _values(dtype: torch.dtype) -> tuple[Any, Any]:
    if dtype == torch.bool:
        return True, False
    if dtype.is_floating_point or dtype.is_complex:
        large = math.sqrt(torch.finfo(dtype).max)
        return large, -large / 3
    info = torch.iinfo(dtype)
    return (info.max, info.min) if info.min else (0xA5 & info.max, info.max ^ (0xA5 & info.max))


@lru_cache(maxsize=64)
def _element(dtype: torch.dtype, side: int) -> bytes:
    return raw(compat.outside_of_modes(torch.full, (1,), _values(dtype)[side], dtype=dtype))


class Poison:
    """What one buffer was filled with."""

    __slots__ = ("held", "side")

    def __init__(self, buffer: torch.Tensor, side: int) -> None:
        self.held, self.side = _element(buffer.dtype, side) * buffer.numel(), side
        if buffer.is_contiguous():
            fill(buffer, self.held)
        else:
            buffer.detach().fill_(_values(buffer.dtype)[side])

    def intact(self, buffer: torch.Tensor) -> bool:
        """Whether nobody has written into the buffer."""
        now = raw(buffer) if buffer.is_contiguous() else contents(buffer)
        return now == self.held


# What a call has put somewhere: the op, and the number of the rank's calls when it was called and
# when the values came.
Filled = tuple[Event, int, int]


class Poisons:
    """Which poison each buffer gets. ``side`` 0 or 1; ``flip`` (rank, k): the other side for the
    first k buffers of that rank.
    """

    def __init__(self, side: int = 0, flip: tuple[int, int] = (-1, 0)) -> None:
        self.side, self.flip = side, flip
        self.left = MOST  # once they are used up, nothing will be compared
        self.filled: dict[tuple[int, int], Filled] = {}  # by rank and address: what came there last

    def put(self, rank: Rank, buffer: torch.Tensor) -> Poison | None:
        """Poison the buffer that the rank's last call will fill."""
        self.left -= 1
        if self.left < 0:
            return None
        other = rank.number == self.flip[0] and len(rank.poisoned) < self.flip[1]
        rank.poisoned.append(rank.records[-1])
        if not buffer.numel() or buffer.is_sparse:
            return None
        return Poison(buffer, self.side ^ other)
