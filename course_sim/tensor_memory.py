"""What lies in a tensor's memory: whether it simply lies there; read, written, and compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ctypes import memmove, string_at
from typing import Any

import torch


def list_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensor that a value is, or those in it, if it is a list or tuple; of lists, too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from list_tensors(each)


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
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y, depth + 1) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k], depth + 1) for k in a)
    if callable(a):
        return True
    if hasattr(a, "__dict__"):
        return equal(vars(a), vars(b), depth + 1)
    if type(a).__eq__ is object.__eq__:
        return True  # nothing in it that could be compared
    return bool(a == b or (a != a and b != b))  # NaN


def contiguous_view(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous view of a dense tensor, as of a transposed one; of others the tensor itself."""
    if tensor.is_sparse or tensor.is_contiguous():
        return tensor
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    lying = tensor.permute(order)
    return lying if lying.is_contiguous() else tensor


def refuse_memory(backend: str, op: str, tensors: Iterable[torch.Tensor]) -> None:
    """Raise for a tensor that is no block of memory on the CPU. Of sparse ones gloo has a sum."""
    for tensor in tensors:
        kind = _kind(tensor)
        if kind and (kind, op, backend) != ("sparse", "all_reduce", "gloo"):
            raise RuntimeError(f"{backend} has no {op} of a {kind} tensor: {_INSTEAD[kind]}")
        if not tensor.is_cpu:
            raise RuntimeError(
                f"simulated ranks have no {tensor.device.type}: use course_lib.device(), "
                "which is the CPU here"
            )


def refuse_scattered(op: str, tensor: torch.Tensor) -> None:
    """Raise for a tensor that cannot be sent or received as one block of memory."""
    if not _kind(tensor) and tensor.is_cpu and tensor.is_contiguous():
        return
    refuse_memory("gloo", op, [tensor])
    raise RuntimeError("input tensor has to be contiguous: communicate one that is")


_INSTEAD = {
    "nested": "communicate its parts, x.unbind()",
    "quantized": "communicate x.int_repr() and its scale",
    "sparse": "communicate x.to_dense(), or its indices and values",
    "compressed sparse": "communicate x.to_dense(), or its indices and values",
}


def _kind(tensor: torch.Tensor) -> str:
    """What a tensor is that does not simply lie in memory; "" if it does."""
    if tensor.is_nested:
        return "nested"
    if tensor.is_quantized:
        return "quantized"
    if tensor.layout is torch.strided:
        return ""
    return "sparse" if tensor.is_sparse else "compressed sparse"
