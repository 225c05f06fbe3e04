"""Plain data over a socket: a line of JSON a message. Nothing is ever unpickled here.

One end is the judge, the other a process that runs somebody's code and may send anything. So the
judge's end takes no line above a stated size, waits no longer than it wants to, and turns whatever
is no JSON object into one error. In it, values travel as

    None, bool, int, float, str      themselves
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
import json
import math
import socket
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy
import torch
from torch import Tensor

MOST = 16 << 20  # bytes of a message; as JSON it may take twenty times as much to read
MOST_SECONDS = 1e6  # that a wait may be told to take
TICK = 0.1  # seconds after which a waiting reader looks up
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


class Malformed(Exception):
    """The other end has sent what it may not send."""


class Ended(Exception):
    """The other end has gone."""


class Talk:
    """One end. ``patient`` is asked now and then, at every tick, whether to go on."""

    def __init__(self, sock: socket.socket, patient: Callable[[], bool] | None = None) -> None:
        self.sock, self._patient = sock, patient
        self._buffer = bytearray()
        if patient is not None:
            sock.settimeout(TICK)

    def send(self, message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        if len(data) > MOST:
            raise ValueError(f"{len(data):,} bytes at once; {MOST:,} are what an answer may send")
        try:
            while data:
                try:
                    data = data[self.sock.send(data) :]
                except TimeoutError:
                    self._look_up()
        except OSError as error:
            raise Ended(str(error)) from None

    def receive(self) -> dict[str, Any]:
        """The next message. Raises Ended, Malformed, or TimeoutError when patience has run out."""
        end = self._buffer.find(b"\n")
        while end < 0:
            seen = len(self._buffer)
            if seen > MOST:
                raise Malformed("a message without end")
            self._read()
            end = self._buffer.find(b"\n", seen)
        body = self._buffer[:end]
        del self._buffer[: end + 1]
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"no JSON: {type(error).__name__}") from None
        if not isinstance(message, dict):
            raise Malformed("no JSON object")
        return message

    def _read(self) -> None:
        self._look_up()  # also where bytes come, and never enough
        try:
            block = self.sock.recv(1 << 18)
        except TimeoutError:
            return
        except OSError as error:
            raise Ended(str(error)) from None
        if not block:
            raise Ended("end of file")
        self._buffer += block

    def _look_up(self) -> None:
        if self._patient is not None and not self._patient():
            raise TimeoutError("nothing came in time")


# ---- beside the student's code ---------------------------------------------------------------


def encode(value: Any, depth: int = 0) -> Any:
    """``value`` as what JSON can hold."""
    if depth > DEEPEST:
        return {"opaque": "nest"}
    if value is None or type(value) in (bool, str):
        return value
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if type(value) is Fraction:
        return {"fraction": [value.numerator, value.denominator]}
    if type(value) in _NUMBERS:
        return {"numpy": [type(value).__name__, value.item()]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
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
        whole, size = plain.untyped_storage(), plain.element_size()
        if around and whole.nbytes() <= 1 << 20:
            first, stop = 0, whole.nbytes() // size
        piece = torch.empty(0, dtype=torch.uint8)
        piece.set_(whole, first * size, ((stop - first) * size,), (1,))
        data = piece.numpy().tobytes() if stop > first else b""
        return {**form(plain), "offset": plain.storage_offset() - first, "bytes": text_of(data)}


def form(tensor: Tensor) -> dict[str, Any]:
    """A tensor without what is in it."""
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
            "stride": list(tensor.stride())}  # fmt: skip


def span(shape: Any, stride: Any, offset: int) -> tuple[int, int]:
    """The first element of memory that a tensor touches, and the one after the last."""
    if 0 in shape:
        return offset, offset
    return offset, offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def bytes_of(text: str, most: int = 1 << 26) -> bytes:
    if len(text) > 2 * most:
        raise Malformed("more bytes than there may be")
    return base64.b64decode(text, validate=True)


# ---- with the judge --------------------------------------------------------------------------


def decode(data: Any) -> Any:
    """The value that ``encode`` has described; Malformed where it describes none."""
    try:
        return _decode(data, 0, [MOST_ITEMS])
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError,
            RuntimeError) as error:  # fmt: skip
        raise Malformed(f"a value that is none: {type(error).__name__}") from None


def _decode(data: Any, depth: int, budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0 or depth > DEEPEST + 1:
        raise Malformed("a value of too many parts")
    if data is None or type(data) in (bool, int, float, str):
        return data
    if "dtype" in data:
        return decode_tensor(data)
    ((tag, body),) = data.items()
    if tag == "opaque":
        return Opaque("".join(filter(str.isprintable, body[:60])))
    if tag == "numpy":
        kind, value = body
        (found,) = (t for t in _NUMBERS if t.__name__ == kind)
        return found(_number(value))
    if tag == "fraction":
        above, below = map(_whole, body)
        return Fraction(above, below)
    if tag == "range":
        start, stop, step = map(_whole, body)
        numbers = range(start, stop, step)
        # Who judges it may go through all of it. (``len`` fails above what a C long can hold.)
        return numbers if not numbers[LONGEST_RANGE:] else Opaque("range without end")
    if tag not in ("list", "tuple", "dict") or type(body) is not list:
        raise Malformed("a value with a tag that is none")
    if tag == "dict":
        pairs = [[_decode(part, depth + 1, budget) for part in pair] for pair in body]
        return {key: value for key, value in pairs}  # noqa: C416  # a pair of more is malformed
    items = [_decode(item, depth + 1, budget) for item in body]
    return items if tag == "list" else tuple(items)


class Opaque:
    """Stands for a value of a class that does not travel: equal to nothing but itself."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"a {self.kind}"


def _number(value: Any) -> int | float:
    return value if type(value) is float else _whole(value)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise Malformed("no number where one should be")
    return value


def opened(rows: list, most: int) -> list[Tensor]:
    """The tensors of a call, in memory of the judge's own; those that are only filled come without
    bytes. Malformed where they are none, or need more than ``most`` bytes."""
    if len(rows) > 4096:
        raise Malformed("more tensors than any call has")
    try:
        tensors = [decode_tensor(row, most, blank="bytes" not in row) for row in rows]
    except (TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
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
    if any(type(value) is not int or not 0 <= value < 1 << 40 for value in values):
        raise Malformed("a size that is none")
    return values
