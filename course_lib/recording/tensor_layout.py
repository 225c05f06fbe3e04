"""What the recorder notes of a call's tensors: dtypes, sizes, and where they lie in memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from course_lib.overlap import stretch


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def sizes_of(reads: Any, writes: Any, in_order: bool) -> tuple[int, int, bool]:
    """The bytes that a call reads and writes, and whether its tensors have no gaps. If the call
    fills its outputs ``in_order``, only the outputs count, and a transposed one has gaps.
    """
    bytes_in, bytes_out, dense = 0, 0, True
    try:
        for tensor in reads:
            bytes_in += tensor.nbytes
            dense = dense and (in_order or tensor.is_contiguous() or _is_dense(tensor))
        for tensor in writes:
            bytes_out += tensor.nbytes
            dense = dense and (tensor.is_contiguous() or (not in_order and _is_dense(tensor)))
    except RuntimeError:  # a sparse tensor is no one block of memory
        return _dense_size(reads), _dense_size(writes), True
    return bytes_in, bytes_out, dense


def _dense_size(tensors: Sequence[torch.Tensor]) -> int:
    """The bytes that these would take if they were not sparse: as many on all ranks."""
    return sum(t.numel() * t.element_size() for t in tensors)


def span_of(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses between which a tensor's elements lie, gaps included; (0, 0) of none."""
    return stretch(tensor) if tensor.layout is torch.strided and tensor.numel() else (0, 0)


def memory_of(tensor: torch.Tensor) -> int:
    """The address of the memory that a tensor looks into; 0 if it has none of its own."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def splits_of(op: str, reads: Any, writes: Any, rows: Sequence[Any] | None) -> tuple:
    """The fields ``called``, ``in_splits`` and ``out_splits`` of an Event; () if nothing is known.
    ``rows`` are what all_to_all_single was given for its output and its input.
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


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie side by side in some order, as those of a transpose do."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous()
