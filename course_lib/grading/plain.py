"""Values as plain data, and back: what may come out of a process that runs a student's code.

    None, bool, int, float, str      themselves (an int in words: JSON has no large ones)
    Fraction, a number of numpy's    numerator and denominator; its dtype and value
    Tensor                           dtype, shape, stride, and the bytes of its piece of memory
    list, tuple, dict, range         a tag and their items
    all else                         the name of its class, and nothing of it

``encode`` runs beside the student's code, ``decode`` with the judge, and decode believes nothing:
types are exact, sizes are compared with the bytes that came, and no object of a class that the
student has made ever comes into being.
"""

from __future__ import annotations

import base64
import math
from fractions import Fraction
from typing import Any

import numpy
import torch
from torch import Tensor

from course_lib.grading.frames import Malformed

DTYPES = {
    str(d).removeprefix("torch."): d
    for d in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
        torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128,
    )
}  # fmt: skip
_NUMBERS = (numpy.float16, numpy.float32, numpy.int32, numpy.int64)  # a float64 is a float
DEEPEST = 30  # levels of lists in lists
MOST_ITEMS = 200_000
LONGEST_RANGE = 1 << 25


class Opaque:
    """Stands for a value of a class that does not travel: equal to nothing but itself."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"a {self.kind}"


# ---- beside the student's code ---------------------------------------------------------------


def encode(value: Any, depth: int = 0) -> Any:
    """``value`` as what JSON can hold."""
    if depth > DEEPEST:
        return {"opaque": "nest"}
    if value is None or type(value) in (bool, str):
        return value
    if isinstance(value, bool | int):
        return {"int": str(int.__index__(value))}
    if isinstance(value, float):
        return {"float": float.hex(float.__float__(value))}
    if isinstance(value, str):
        return str.__str__(value)
    if type(value) is Fraction:
        return {"fraction": [str(value.numerator), str(value.denominator)]}
    if type(value) in _NUMBERS:
        return {"numpy": [type(value).__name__, encode(value.item())]}
    if isinstance(value, range):
        return {"range": [str(value.start), str(value.stop), str(value.step)]}
    if isinstance(value, Tensor):
        return encode_tensor(value)
    if isinstance(value, list):
        return {"list": [encode(v, depth + 1) for v in list.__iter__(value)]}
    if isinstance(value, tuple):
        return {"tuple": [encode(v, depth + 1) for v in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return {"dict": [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in value.items()]}
    return {"opaque": type(value).__name__[:60]}


def encode_tensor(tensor: Tensor, around: bool = True) -> dict[str, Any]:
    """``around``: with what lies around it in a small piece of memory, so that writes beside it
    show."""
    with torch._C.DisableTorchFunctionSubclass():
        plain = tensor.detach().as_subclass(Tensor).cpu()
        if plain.layout != torch.strided or plain.is_quantized:
            return {"opaque": "tensor that is not strided"}
        plain = plain.resolve_conj().resolve_neg()
        first, stop = span(plain.shape, plain.stride(), int(plain.storage_offset()))
        whole = plain.untyped_storage()
        size = plain.element_size()
        if around and whole.nbytes() <= 1 << 20:
            first, stop = 0, whole.nbytes() // size
        return {
            **form(plain), "offset": plain.storage_offset() - first,
            "bytes": text_of(memory(whole, first * size, (stop - first) * size)),
        }  # fmt: skip


def form(tensor: Tensor) -> dict[str, Any]:
    """A tensor without what is in it."""
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
            "stride": list(tensor.stride())}  # fmt: skip


def span(shape: Any, stride: Any, offset: int) -> tuple[int, int]:
    """The first element of memory that a tensor touches, and the one after the last."""
    if 0 in shape:
        return offset, offset
    return offset, offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def memory(storage: Any, first: int, count: int) -> bytes:
    """A piece of a storage, as bytes."""
    piece = torch.empty(0, dtype=torch.uint8).set_(storage, first, (count,), (1,))
    return piece.numpy().tobytes() if count else b""


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def bytes_of(text: Any, most: int = 1 << 26) -> bytes:
    return base64.b64decode(_text(text, 2 * most), validate=True)


# ---- with the judge --------------------------------------------------------------------------


def decode(data: Any) -> Any:
    """The value that ``encode`` has described; Malformed where it describes none."""
    try:
        return _decode(data, 0, [MOST_ITEMS])
    except (TypeError, ValueError, KeyError, IndexError, ArithmeticError, RuntimeError) as error:
        raise Malformed(f"a value that is none: {type(error).__name__}") from None


def _decode(data: Any, depth: int, budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0 or depth > DEEPEST + 1:
        raise Malformed("a value of too many parts")
    if data is None or type(data) in (bool, str):
        return data
    if type(data) is not dict or not data:
        raise Malformed("a value without a tag")
    if "dtype" in data:
        return decode_tensor(data)
    ((tag, body),) = data.items()
    if tag == "int":
        return int(_text(body, 400))
    if tag == "float":
        return float.fromhex(_text(body, 60))
    if tag == "fraction":
        return Fraction(*(int(_text(n, 4000)) for n in body))
    if tag == "numpy":
        (kind,) = (t for t in _NUMBERS if t.__name__ == body[0])
        return kind(_decode(body[1], depth + 1, budget))
    if tag == "range":
        start, stop, step = (int(_text(n, 40)) for n in body)
        numbers = range(start, stop, step)
        # Who judges it may go through all of it. (``len`` fails above what a C long can hold.)
        return numbers if not numbers[LONGEST_RANGE:] else Opaque("range without end")
    if tag in ("list", "tuple"):
        items = [_decode(item, depth + 1, budget) for item in _items(body)]
        return items if tag == "list" else tuple(items)
    if tag == "dict":
        pairs = [[_decode(part, depth + 1, budget) for part in pair] for pair in _items(body)]
        return {key: value for key, value in pairs}  # noqa: C416  # a pair of more is malformed
    if tag == "opaque":
        return Opaque("".join(c for c in _text(body, 60) if c.isprintable()))
    raise Malformed("a value with a tag that is none")


def _text(value: Any, most: int) -> str:
    if type(value) is not str or len(value) > most:
        raise Malformed("no text where one should be")
    return value


def _items(value: Any) -> list:
    if type(value) is not list:
        raise Malformed("no list where one should be")
    return value


def opened(rows: Any, most: int) -> list[Tensor]:
    """The tensors of a call, in memory of the judge's own; those that are only filled come without
    bytes. Malformed where they are none, or need more than ``most`` bytes."""
    if type(rows) is not list or len(rows) > 4096:
        raise Malformed("no tensors where some should be")
    try:
        tensors = [decode_tensor(row, most, blank="bytes" not in row) for row in rows]
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise Malformed(f"a call whose tensors are none: {type(error).__name__}") from None
    if sum(t.nbytes for t in tensors) > most:
        raise Malformed("a call with too much memory")
    return tensors


def decode_tensor(data: dict[str, Any], most: int = 1 << 26, blank: bool = False) -> Tensor:
    dtype = DTYPES[data["dtype"]]
    shape, stride = _sizes(data["shape"]), _sizes(data["stride"])
    (offset,) = (0,) if blank else _sizes([data["offset"]])
    size = torch.empty(0, dtype=dtype).element_size()
    _, stop = span(shape, stride, offset)
    if math.prod(shape) * size > most or (blank and stop * size > most):
        raise Malformed("a tensor that is too large")
    raw = bytearray(stop * size if blank else bytes_of(data["bytes"], most))
    if len(raw) % size or (stop * size > len(raw) and 0 not in shape):
        raise Malformed("a tensor larger than its bytes")
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(raw, dtype=dtype).as_strided(shape, stride, offset)


def _sizes(values: Any) -> list[int]:
    if type(values) is not list or len(values) > 12:
        raise Malformed("no sizes where some should be")
    for value in values:
        if type(value) is not int or not 0 <= value < 1 << 40:
            raise Malformed("a size that is none")
    return values
