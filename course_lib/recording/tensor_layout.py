"""What the recorder writes down of a call's tensors: dtypes, sizes, and where they lie."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dense_size(tensors: Sequence[torch.Tensor]) -> int:
    """What these would take in bytes, were they not sparse: that is equal on all ranks."""
    return sum(t.numel() * t.element_size() for t in tensors)


def span_of(tensor: torch.Tensor) -> tuple[int, int]:
    """From where to where its elements lie; those of a strided one in between count, too."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return 0, 0
    start, size = tensor.data_ptr(), tensor.element_size()
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (reach + 1) * size


def memory_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def splits_of(op: str, reads: Any, writes: Any, rows: Sequence[Any] | None) -> tuple:
    """The last fields of an Event, from ``called`` on, where they are known; ``rows`` are those
    that all_to_all_single was given for what it writes and what it reads.
    """
    if op == "all_to_all":
        return None, tuple(map(torch.numel, reads)), tuple(map(torch.numel, writes))
    if op == "reduce_scatter" and len(writes) == 1:
        return None, tuple(map(torch.numel, reads)), (writes[0].numel(),) * len(reads)
    if op == "all_to_all_single" and rows is not None:
        return None, _elements(reads[0], rows[1]), _elements(writes[0], rows[0])
    return ()


def _elements(tensor: torch.Tensor, rows: Sequence[int]) -> tuple[int, ...]:
    """How many elements each block of so many rows has."""
    return tuple(count * tensor[:1].numel() for count in rows)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie side by side in some order, as those of a transpose do."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous()
