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

from course_sim.isolation import compat
from course_sim.tensor_memory import contents, fill, raw

MOST = 8_000  # buffers to fill up to which a program is run a second time


def _values(dtype: torch.dtype) -> tuple[Any, Any]:
    if dtype == torch.bool:
        return True, False
    if dtype.is_floating_point or dtype.is_complex:
        large = math.sqrt(torch.finfo(dtype).max)
        return large, -large / 3
    info = torch.iinfo(dtype)
    # without a sign: every second bit or so, and its complement
    return (info.max, info.min) if info.min else (0xA5 & info.max, info.max ^ (0xA5 & info.max))


@lru_cache(maxsize=64)
def _element(dtype: torch.dtype, side: int) -> bytes:
    return raw(compat.outside_of_modes(torch.full, (1,), _values(dtype)[side], dtype=dtype))


def is_intact(buffer: torch.Tensor, held: bytes | None) -> bool:
    """Whether a buffer holds this still; always where nobody can have written into it (None)."""
    return held is None or held == (raw(buffer) if buffer.is_contiguous() else contents(buffer))


class Buffers:
    """One rank's buffers that its calls own. Calls are named by their number on the rank."""

    def __init__(self, most: int, side: int, flipped: int) -> None:
        self.most = most  # to be poisoned
        self.side, self.flipped = side, flipped  # the first ``flipped`` get the other poison
        self.last = 0  # the number of the rank's last call
        # By address, the call that was the last to fill it, and the rank's last call at that time.
        self.filled: dict[int, tuple[int, int]] = {}
        self._poisoned = 0

    def put(self, buffer: torch.Tensor) -> bytes | None:
        """Poison a buffer that a call will fill; returns what it holds then, if it is poisoned."""
        self._poisoned += 1
        if self._poisoned > self.most or not buffer.numel() or buffer.is_sparse:
            return None
        side = self.side ^ (self._poisoned <= self.flipped)
        held = _element(buffer.dtype, side) * buffer.numel()
        if buffer.is_contiguous():
            fill(buffer, held)
        else:
            buffer.detach().fill_(_values(buffer.dtype)[side])
        return held
