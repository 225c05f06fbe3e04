"""A value that travels as it is: packed once, carried as bytes, unpacked where it is used.

    Kept(value) ──► bytes ──► rank, file, judge ──► kept.value, a fresh copy each time

Tensors keep their strides and the memory between their elements, parameters keep their gradients;
torch's own way to pickle loses both, and takes 100 times as long as a tensor of a check's size
needs: a case carries dozens of them.
"""

from __future__ import annotations

import pickle
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.pickling import Pickler


class Kept:
    """A value as bytes.

    Making one raises what pickling the value raises, ``value`` what unpickling it raises.
    """

    __slots__ = ("pickled",)

    def __init__(self, value: Any) -> None:
        pickler = _WholePickler()
        pickler.dump(value)
        self.pickled = pickler.buffer.getvalue()

    @property
    def value(self) -> Any:
        return pickle.loads(self.pickled)


class Unpacked(Kept):
    """A value as bytes that arrives as the value itself."""

    def __reduce__(self) -> tuple:
        return pickle.loads, (self.pickled,)


class _WholePickler(Pickler):
    """Packs a tensor with all of the memory that it looks into."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is nn.Parameter and _is_plain(obj):
            return _make_parameter, (obj.data, obj.grad, obj.requires_grad)
        if type(obj) is Tensor and _is_plain(obj):
            memory, *where = _take_apart(obj)
            return _make_tensor, (bytearray(memory.numpy()), *where)
        return super().reducer_override(obj)


def snapshot(value: Any) -> Any:
    """A copy that later writes do not reach, strides and the memory between them included."""
    if type(value) in (list, tuple):
        return type(value)(map(snapshot, value))
    if type(value) is dict:
        return {key: snapshot(item) for key, item in value.items()}
    if type(value) is Tensor and _is_plain(value):
        return _make_tensor(*_take_apart(value))
    return value if value is None or type(value) in (bool, int, float, str) else Kept(value).value


def _is_plain(t: Tensor) -> bool:
    """Whether a tensor is its memory, dtype, shape and strides, and nothing else."""
    lies_in_memory = t.layout == torch.strided and t.device.type == "cpu" and not t.is_quantized
    return lies_in_memory and not (t.is_nested or t.is_conj() or t.is_neg() or t.__dict__)


def _take_apart(t: Tensor) -> tuple[Any, ...]:
    memory = torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage())
    return memory, t.dtype, t.requires_grad, t.storage_offset(), tuple(t.shape), t.stride()


def _make_tensor(memory: Tensor | bytearray, dtype: torch.dtype, grad: bool, *place: Any) -> Tensor:
    """Make the tensor again, in memory of its own: unlike torch's, no two tensors share memory."""
    if not isinstance(memory, Tensor):
        memory = torch.frombuffer(memory, dtype=torch.uint8) if memory else torch.empty(0)
    made = torch.empty(0, dtype=dtype).set_(memory.clone().untyped_storage(), *place)
    return made.requires_grad_(grad)


def _make_parameter(data: Tensor, grad: Tensor | None, requires_grad: bool) -> nn.Parameter:
    made = nn.Parameter(data, requires_grad)
    made.grad = grad
    return made
