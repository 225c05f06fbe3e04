"""What lies in a tensor's memory: read, written, and compared."""

from __future__ import annotations

from ctypes import memmove, string_at
from typing import Any

import torch


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
