"""Plain data over a socket: a line of JSON a message. Nothing is ever unpickled here.

One end is the judge, the other a process that runs somebody's code and may send anything. So the
judge's end takes no line above a stated size, waits no longer than it wants to, and turns whatever
is no JSON object into one error. In it, values travel as

    None, bool, int, float, str, list    themselves; any other real number as a float
    tuple, dict, range                   a tag and their items
    Tensor                               dtype, shape, stride, and the bytes of its piece of memory
    all else                             the name of its class, and nothing of it

``encode`` runs beside the student's code, ``decode`` with the judge, and decode believes nothing:
types are exact, sizes are compared with the bytes that came, and no object of a class that the
student has made ever comes into being.
"""

from __future__ import annotations

import base64
import json
import math
import operator
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from time import monotonic  # a rank's own is patched
from typing import Any

import torch
from torch import Tensor

from course_check.compare import real

MOST = 16 << 20  # bytes of a message; as JSON it may take twenty times as much to read
_DTYPES = "float32 float64 float16 bfloat16 int8 uint8 int16 int32 int64 bool complex64 complex128"
DTYPES = {name: getattr(torch, name) for name in _DTYPES.split()}
LARGEST_TENSOR = 1 << 26  # bytes
MOST_DIMENSIONS = 13
AROUND = 1 << 18  # bytes of memory that a tensor brings whole
DEEPEST = 30  # levels of lists in lists
MOST_ITEMS = 200_000
LONGEST_RANGE = 1 << 25
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_NO_MARKS = re.compile(rb"[^][{}]+")


class Malformed(Exception):
    """The other end has sent what it may not send."""


class Ended(Exception):
    """The other end has gone."""


_FAULTS = TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError


@contextmanager
def believing_nothing(what: str) -> Iterator[None]:
    """Whatever goes wrong in here is the fault of who sent it."""
    try:
        yield
    except _FAULTS as error:
        raise Malformed(f"{what}: {type(error).__name__}") from None


class Talk:
    """One end. If its socket has a timeout, nothing is waited for after ``until``."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.until = sock, math.inf
        self._buffer = bytearray()

    def send(self, message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        if len(data) > MOST:
            raise ValueError(f"{len(data):,} bytes at once; {MOST:,} are what an answer may send")
        while data:
            data = data[self._try(self.sock.send, data) or 0 :]

    def receive(self) -> dict[str, Any]:
        """The next message. Raises Ended, Malformed, or TimeoutError after ``until``."""
        end = self._buffer.find(b"\n")
        while end < 0:
            seen = len(self._buffer)
            if seen > MOST:
                raise Malformed("a message without end")
            block = self._try(self.sock.recv, 1 << 18)
            if block == b"":
                raise Ended("end of file")
            self._buffer += block or b""
            end = self._buffer.find(b"\n", seen)
        body = self._buffer[:end]
        del self._buffer[: end + 1]
        if _is_deep(bytes(body)):
            raise Malformed("too many levels")
        with believing_nothing("JSON"):
            message = json.loads(body)
        if not isinstance(message, dict):
            raise Malformed("no JSON object")
        return message

    def _try(self, what: Callable[[Any], Any], data: Any) -> Any:
        """Send or receive some bytes; None if none have gone or come before the socket gave up."""
        if monotonic() > self.until:  # also where bytes come, and never enough
            raise TimeoutError("nothing came in time")
        try:
            return what(data)
        except TimeoutError:
            return None
        except OSError as error:
            raise Ended(str(error)) from None


def _is_deep(body: bytes) -> bool:
    """Whether lists stand in more lists than any value may have, each with its tag.

    From Python 3.12 on the parser goes thousands of levels down, whatever room its thread has: in a
    simulated rank's, the judge would die of it.
    """
    marks = _NO_MARKS.sub(b"", _STRINGS.sub(b"", body))[: 8 * MOST_ITEMS]  # more cannot be right
    for _ in range(3 * DEEPEST):
        marks = marks.replace(b"[]", b"").replace(b"{}", b"")
    return bool(marks)


# ---- values: beside the student's code, and with the judge ---------------------------------------


def encode(value: Any, depth: int = 0) -> Any:
    """``value`` as what JSON can hold."""
    if depth > DEEPEST:
        return {"opaque": "nest"}
    if value is None or type(value) in (bool, str):
        return value
    if isinstance(value, Integral):  # numpy's, too
        return int.__index__(operator.index(value))
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, Tensor):
        return encode_tensor(value)
    if isinstance(value, list):
        return [encode(v, depth + 1) for v in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"tuple": [encode(v, depth + 1) for v in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return {"dict": [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in value.items()]}
    number = real(value)
    return {"opaque": type(value).__name__[:60]} if number is None else number


def encode_tensor(tensor: Tensor) -> dict[str, Any]:
    with torch._C.DisableTorchFunctionSubclass():
        plain = tensor.detach().as_subclass(Tensor).cpu()
        if plain.layout != torch.strided or plain.is_quantized:
            return {"opaque": "tensor that is not strided"}
        return {"tensor": _taken_apart(plain.resolve_conj().resolve_neg())}


def decode(data: Any) -> Any:
    """The value that ``encode`` has described; Malformed where it describes none."""
    with believing_nothing("a value that is none"):
        return _decode(data, 0, [MOST_ITEMS])


def _decode(data: Any, depth: int, budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0 or depth > DEEPEST + 1:
        raise Malformed("a value of too many parts")
    if data is None or type(data) in (bool, int, float, str):
        return data
    if type(data) is list:
        return [_decode(item, depth + 1, budget) for item in data]
    ((tag, body),) = data.items()
    if tag == "tensor":
        row, text = body
        return _placed(row, flat(text, torch.uint8))
    if tag == "opaque":
        budget[0] -= 9  # a class takes 2.5 kB and 10 µs: 20,000 of them are enough
        return type("".join(filter(str.isprintable, body[:60])) or "object", (Opaque,), {})()
    if tag == "range":
        if any(type(number) is not int for number in body):
            raise Malformed("a range that is none")
        numbers = range(*body)
        # Who judges it may go through all of it. (``len`` fails above what a C long can hold.)
        return numbers if not numbers[LONGEST_RANGE:] else type("long range", (Opaque,), {})()
    items = [_decode(item, depth + 1, budget) for item in body]
    if tag not in ("tuple", "dict") or type(body) is not list:
        raise Malformed("a value with a tag that is none")
    return tuple(items) if tag == "tuple" else {key: value for key, value in items}  # noqa: C416


class Opaque:
    """Stands for a value of a class that does not travel: equal to nothing but itself.

    It is made of a class with that class's name, because verdicts say what a value is.
    """

    def __repr__(self) -> str:
        return f"a {type(self).__name__}"


# ---- tensors: one with the memory that it lies in, or what a call takes of it --------------------


def _taken_apart(t: Tensor) -> list[Any]:
    """How a tensor lies in memory, and that: with what lies around it where that is little, so that
    writes beside it show."""
    whole = t.untyped_storage()
    size = t.element_size()
    offset = int(t.storage_offset())
    first, stop = 0, whole.nbytes()
    if stop > AROUND:
        first = min(size * offset, stop)  # an empty view may begin behind the end
        stop = first + size * _extent(t.shape, t.stride())
    piece = torch.empty(0, dtype=torch.uint8).set_(whole, first, (stop - first,), (1,))
    row = {
        "dtype": str(t.dtype).removeprefix("torch."),
        "shape": list(t.shape),
        "stride": list(t.stride()),
        "offset": offset - first // size,
    }
    return [row, text_of(piece.numpy().tobytes())]


def kind_of(tensor: Tensor) -> list[Any]:
    """What a call is told of a tensor of which it needs no values."""
    if tensor.layout != torch.strided:
        raise RuntimeError(f"a {tensor.layout} tensor does not go by this network: x.to_dense()")
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]


def of_kind(told: Any) -> Tensor:
    """A tensor of that dtype and shape, without memory."""
    with believing_nothing("a tensor that is none"):
        dtype, shape = told
        if len(shape) > MOST_DIMENSIONS:
            raise Malformed("a tensor of too many dimensions")
        made = torch.empty(list(map(_whole, shape)), dtype=DTYPES[dtype], device="meta")
    if made.nbytes > LARGEST_TENSOR:
        raise Malformed("a tensor larger than any")
    return made


def flat(text: str, dtype: torch.dtype) -> Tensor:
    """The elements that these bytes are."""
    with believing_nothing("bytes that are none"):
        data = bytearray(bytes_of(text))
        return torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)


def _extent(shape: Any, stride: Any) -> int:
    """How many elements of memory there are from a tensor's first to its last."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))


def _placed(row: dict[str, Any], piece: Tensor) -> Tensor:
    """The tensor that lies so in a piece of memory."""
    dtype, offset = DTYPES[row["dtype"]], _whole(row["offset"])
    shape, stride = (
        [_whole(n) for n in row[name][:MOST_DIMENSIONS]] for name in ("shape", "stride")
    )
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    last = offset + _extent(shape, stride)
    if last * dtype.itemsize > len(piece) or math.prod(shape) * dtype.itemsize > LARGEST_TENSOR:
        raise Malformed("a tensor larger than its bytes")
    return torch.empty(0, dtype=dtype).set_(piece.untyped_storage(), offset, shape, stride)


def _whole(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 40:
        raise Malformed("a size that is none")
    return number


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def bytes_of(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
