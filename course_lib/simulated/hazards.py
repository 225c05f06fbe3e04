"""Finding what luck hides: buffers that are used while a message still owns them.

    irecv ──────────── wait        the buffer is filled with poison: whoever reads it, reads that
    isend ──────────── wait        the buffer must still hold what was sent, byte for byte

Poison cannot be recognised in what is computed from it, but two kinds can be told apart: the
program runs twice, with a negative number in place of a positive one (the complement for integers,
False for True); both are large, but finite, since ∞/n is ∞ and nobody would see who divides. If a
result or a message differs, something was read too early. A program that differs from itself
with equal poison, too, is not deterministic: then nothing is said. Whose buffer was read is found
by halving: poison the first k of a rank's buffers the other way, and see whether it matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import memmove, string_at
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from course_lib.diagnosis import explain
from course_lib.errors import Hang, Hazard
from course_lib.simulated.isolation import compat
from course_lib.simulated.rank import Rank
from course_lib.trace import Event

if TYPE_CHECKING:
    from course_lib.simulated.engine import Play

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


def raw(tensor: torch.Tensor) -> bytes:
    """What lies in the memory of a contiguous tensor."""
    address, size = tensor.data_ptr(), tensor.nbytes
    if size and not address:
        raise RuntimeError("a tensor without memory cannot be sent or received")
    return string_at(address, size)


def fill(tensor: torch.Tensor, data: bytes) -> None:
    """Put what has come into the memory of a contiguous tensor."""
    if tensor.nbytes != len(data) or not (address := tensor.data_ptr()):
        if data:
            raise RuntimeError("a tensor must keep its memory until its recv is over")
        return
    memmove(address, data, len(data))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold equal values, NaN equal to NaN."""
    return (not a.is_sparse and torch.equal(a, b)) or contents(a) == contents(b)


def contents(tensor: torch.Tensor) -> bytes:
    """What a tensor holds, element by element."""
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    return raw(tensor.detach().resolve_conj().resolve_neg().contiguous())


# ---- reading before wait -----------------------------------------------------------------


def find_read(first: Play, again: Callable[..., Play]) -> Hazard | None:
    """The Hazard if what the program does depends on what buffers held that were yet to be filled;
    ``again`` plays it with other Poisons.
    """
    other = again(side=1)
    rank = _difference(first, other)
    if rank is None or _difference(first, again()) is not None:
        return None
    if _difference(other, again(side=1)) is not None:
        return None
    # with the first ``low`` flipped nothing differs, with the first ``high`` it does
    low, high = 0, len(first.ranks[rank].poisoned)
    while high - low > 1:
        middle = (low + high) // 2
        if _difference(first, again(flip=(rank, middle))) is None:
            low = middle
        else:
            high = middle
    record = first.ranks[rank].poisoned[high - 1]
    if record.waited or record.op.op == "recv":
        return explain.read_before_wait(record.op)
    return explain.unwaited(record.event())  # of a sum that nobody waits for, what is returned


def _difference(a: Play, b: Play) -> int | None:
    """The rank that shows a difference first, or None. One that has poison of its own and sends
    what differs comes before one whose result differs.
    """
    if isinstance(b.error, Hang):
        return None  # how far it came within the limit says nothing
    moved = []
    for x, y in zip(a.ranks, b.ranks, strict=True):
        if x.digests != y.digests:
            pairs = zip(x.digests, y.digests, strict=False)
            at = next((p[0] for p, q in pairs if p != q), min(len(x.records), len(y.records)))
            moved.append((x.records[min(at, len(x.records)) - 1].issued, x.number))
    if moved:
        return min(moved)[1]
    if type(a.error) is not type(b.error) or str(a.error) != str(b.error):
        return next((r.number for r in a.ranks if r.poisoned), None)
    both = zip(a.ranks, b.ranks, strict=True)
    return next((x.number for x, y in both if x.poisoned and not equal(x.result, y.result)), None)


def equal(a: Any, b: Any, depth: int = 0) -> bool:
    """Whether two results are the same: tensors and arrays bit by bit, containers item by item."""
    import numpy

    if a is b or depth > 50:
        return True
    if type(a).__qualname__ != type(b).__qualname__:
        return False
    if isinstance(a, torch.Tensor):
        return (
            a.shape == b.shape and a.dtype == b.dtype and (a.layout != torch.strided or same(a, b))
        )
    if isinstance(a, numpy.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return a == b or (a != a and b != b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y, depth + 1) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k], depth + 1) for k in a)
    if hasattr(a, "__dict__") and not isinstance(a, type) and not callable(a):
        return equal(vars(a), vars(b), depth + 1)
    if type(a).__eq__ is object.__eq__ or callable(a):
        return True  # nothing in it that could be compared
    return bool(a == b)
