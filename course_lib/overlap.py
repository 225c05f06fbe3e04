"""Where tensors lie in memory, and whether two of them have an element in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

_MOST_ELEMENTS = 1_000_000


def stretch(tensor: Any) -> tuple[int, int]:
    """The addresses between which a tensor's elements lie, gaps included."""
    start = tensor.data_ptr()
    if tensor.is_contiguous():
        return start, start + tensor.nbytes
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * step for size, step in steps)
    return start, start + (last + 1) * tensor.element_size()


def shared_memory(tensors: Sequence[Any], are_read: bool = False) -> str:
    """What is wrong with the outputs of a call, in words: "one tensor 3 times" or "tensors that
    share memory"; "" if nothing is. All are dense or strided tensors on one device.

    One tensor may stand for several outputs if others have memory of their own: then it is a place
    for what nobody reads. So Muon fills up the list of its last all_gather. But if the call also
    reads its outputs (``are_read``), no tensor may stand for two.
    """
    filled = {_place(tensor): tensor for tensor in tensors if tensor.numel()}
    times = Counter(_place(tensor) for tensor in tensors if tensor.numel())
    if times and (max if are_read else min)(times.values()) > 1:
        return f"one tensor {max(times.values())} times"
    stretches = sorted(map(stretch, filled.values()))
    if all(end <= start for (_, end), (start, _) in pairwise(stretches)):
        return ""
    if sum(tensor.numel() for tensor in filled.values()) > _MOST_ELEMENTS:
        return ""  # they interleave, and to look at each element takes too long
    elements = [address for tensor in filled.values() for address in _addresses(tensor)]
    return "tensors that share memory" if len(set(elements)) < len(elements) else ""


def _place(tensor: Any) -> tuple[Any, ...]:
    """What is equal of two tensors with exactly the same elements."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _addresses(tensor: Any) -> list[int]:
    """Where each element of a tensor lies."""
    out = [tensor.data_ptr()]
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        far = range(0, size * step * tensor.element_size(), step * tensor.element_size())
        out = [start + more for start in out for more in (far if step else [0] * size)]
    return out
