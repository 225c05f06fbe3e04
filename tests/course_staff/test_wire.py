"""Values and tensors as plain data: there and back, and nothing believed on the way."""

from __future__ import annotations

import json
import math
import pickle
import socket
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch

from course_check.compare import same
from course_staff.grading.wire import (
    DTYPES,
    LARGEST_TENSOR,
    MOST,
    Ended,
    Malformed,
    Opaque,
    Talk,
    decode,
    encode,
    flat,
    kind_of,
    of_kind,
)


def there_and_back(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value))))


WHOLE = [None, True, 0, -(10**30), 1.5, math.inf, "a\ud800é", range(3, 9, 2), [1, [2.0]], (1, "x")]
TENSORS = [
    torch.arange(6).reshape(2, 3).t(),
    torch.tensor(3.5),
    torch.empty(99_999)[::2][50_000:],
    torch.tensor([math.nan, -0.0]),
]


@pytest.mark.parametrize("value", [*WHOLE, {"a": [1], 2: None}, *TENSORS])
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    back = there_and_back(value)
    assert type(back) is type(value)
    assert same(back, value)


def test_of_any_other_number_its_value_comes() -> None:
    values = [Fraction(1, 3), numpy.int64(-3), Fraction(10**400)]
    assert there_and_back(values) == [1 / 3, -3.0, math.inf]


def test_every_dtype_comes_back() -> None:
    for dtype in DTYPES.values():
        value = torch.tensor([0, 1, 1]).to(dtype)
        assert same(there_and_back(value), value)


def test_a_strided_tensor_brings_the_memory_around_it() -> None:
    base = torch.arange(9.0)
    back = there_and_back(base[1::2])
    assert back.stride() == (2,)
    assert back.untyped_storage().nbytes() == base.untyped_storage().nbytes()


class Yes(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_classes_do_not_travel_nor_what_nobody_can_look_through() -> None:
    assert type(there_and_back(Yes(3))) is int
    for value in (Yes, object(), range(10**30), range(0, -(10**9), -1)):
        assert isinstance(there_and_back(value), Opaque)
    assert not same(there_and_back(object()), 3)
    assert type(there_and_back(object())).__name__ == "object", "a verdict says what it was"
    assert type(there_and_back(type("", (), {})())).__name__, "a verdict reads its first letter"
    with pytest.raises(Malformed):
        decode([{"opaque": "A"}] * 100_000)


def tensor(**changed: Any) -> dict[str, Any]:
    row = {"dtype": "float32", "shape": [1], "stride": [1], "offset": 0}
    return {"tensor": [row | changed, "AAAAAA=="]}


def nest(depth: int) -> Any:
    return {"list": [nest(depth - 1)]} if depth else None


NO_VALUES: list[Any] = [{}, {"what": 1}, {"tuple": 3}, {"tuple": [], "dict": []}, {"tensor": []}]
NO_VALUES += [{"range": [1, 2, 0]}, {"range": [1, 2.0]}, {"dict": [[1]]}, {"dict": [[[], None]]}]
NO_VALUES += [tensor(dtype="object"), tensor(shape=[10]), tensor(shape=[-1]), nest(200)]
NO_VALUES += [tensor(shape=[2**50], stride=[0]), tensor(offset=2**45), tensor(stride=[1, 1])]


def test_what_is_no_value_is_malformed() -> None:
    assert decode(tensor()) == torch.zeros(1)
    for data in NO_VALUES:
        with pytest.raises(Malformed):
            decode(data)


RUBBISH = [
    (b"x" * (MOST + 1), Malformed),
    (b'{"do":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n", Malformed),
    (b'{"do":' + b"[" * 200 + b"]" * 200 + b"}\n", Malformed),
    (b'{"int": ' + b"9" * 5000 + b"}\n", Malformed),
    (pickle.dumps({"do": "done"}) + b"\n", Malformed),
    (b"[]\n", Malformed),
    (b'{"do": "done"', Ended),
]


@pytest.mark.parametrize(("sent", "error"), RUBBISH, ids=lambda v: repr(v)[:9])
def test_what_is_no_message_is_one_error(sent: bytes, error: type[Exception]) -> None:
    here, there = socket.socketpair()
    with here, ThreadPoolExecutor() as pool:
        pool.submit(lambda: (there.sendall(sent), there.close()))
        with pytest.raises(error):
            Talk(here).receive()
        here.close()


def test_what_a_call_is_told_of_a_tensor_comes_back_without_memory() -> None:
    for dtype in DTYPES.values():
        there = of_kind(json.loads(json.dumps(kind_of(torch.empty(6, dtype=dtype)[::2]))))
        assert (there.dtype, list(there.shape), there.device.type) == (dtype, [3], "meta")
    with pytest.raises(RuntimeError, match="sparse"):
        kind_of(torch.eye(2).to_sparse())


NO_KINDS = [
    None,
    ["float32"],
    ["float32", 3],
    ["object", [1]],
    ["float32", [-1]],
    ["int8", [1] * 99],
]
TOO_LARGE = [["float32", [2**39, 2**39, 2**39]], ["int8", [LARGEST_TENSOR + 1]]]


@pytest.mark.parametrize("told", [*NO_KINDS, *TOO_LARGE])
def test_what_is_no_kind_of_tensor_is_malformed(told: Any) -> None:
    with pytest.raises(Malformed):
        of_kind(told)


def test_bytes_that_are_no_elements_are_malformed() -> None:
    assert flat("AAAAAA==", torch.float32).tolist() == [0.0] and not len(flat("", torch.int8))
    for text in (None, 3, "A", "AA==", "ä"):
        with pytest.raises(Malformed):
            flat(text, torch.float32)
