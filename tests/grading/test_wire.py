"""Values and tensors as plain data: there and back, and nothing believed on the way."""

from __future__ import annotations

import json
import math
import pickle
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from course_lib.checks.compare import left, same
from course_lib.grading.wire import (
    DTYPES,
    MOST,
    Ended,
    Malformed,
    Opaque,
    Talk,
    decode,
    encode,
    encode_tensor,
    form,
    opened,
)

ROOM = 1 << 20  # bytes of a call


def there_and_back(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value))))


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(10**30), 1.5, math.inf, 5e-324, "a\ud800é", range(3, 9, 2), [], [1, [2.0]],
     (1, "x"), {"a": [1], 2: None}, torch.arange(6).reshape(2, 3).t(), torch.tensor(3.5),
     torch.empty(0, 4), torch.tensor([math.nan, -0.0]), Fraction(1, 3), numpy.float32(0.1),
     numpy.int64(-3)],
)  # fmt: skip
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    back = there_and_back(value)
    assert type(back) is type(value)
    assert same(back, value)


def test_every_dtype_comes_back() -> None:
    for dtype in DTYPES.values():
        value = torch.tensor([0, 1, 1]).to(dtype)
        assert same(there_and_back(value), value)


def test_a_strided_tensor_brings_the_memory_around_it() -> None:
    base = torch.arange(9.0)
    back = there_and_back(base[1::2])
    assert back.stride() == (2,)
    assert back.untyped_storage().nbytes() == base.untyped_storage().nbytes()


def test_what_is_left_of_a_model_comes_back_and_the_model_does_not() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model[0].weight.grad = torch.ones(3, 2)
    model[0].bias.requires_grad_(False)
    assert same(there_and_back(left(model.eval())), left(model))
    assert isinstance(there_and_back(model), Opaque)


def test_a_range_that_nobody_can_look_through_is_no_range() -> None:
    assert isinstance(there_and_back(range(10**30)), Opaque)
    assert isinstance(there_and_back(range(0, -(10**9), -1)), Opaque)


class Yes(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_classes_do_not_travel() -> None:
    assert type(there_and_back(Yes(3))) is int
    assert isinstance(there_and_back(Yes), Opaque)
    assert isinstance(there_and_back(object()), Opaque)
    assert not same(there_and_back(object()), 3)


@pytest.mark.parametrize(
    "data",
    [[], {}, {"list": 3}, {"fraction": [1, 0]}, {"fraction": [1.5, 1]}, {"fraction": 3},
     {"numpy": ["ndarray", 1]}, {"numpy": ["float32", {}]}, {"numpy": ["int64", "1"]},
     {"what": 1}, {"list": [], "tuple": []}, {"range": [1, 2, 0]}, {"range": [1, 2]},
     {"dict": [[1]]}, {"opaque": 3}, {"dict": [[{"list": []}, None]]},
     {"dtype": "object", "shape": [], "stride": [], "offset": 0, "bytes": ""},
     {"dtype": "float32", "shape": [10], "stride": [1], "offset": 0, "bytes": "AAAA"},
     {"dtype": "float32", "shape": [2**50], "stride": [0], "offset": 0, "bytes": "AAAAAA=="},
     {"dtype": "float32", "shape": [-1], "stride": [1], "offset": 0, "bytes": ""},
     {"dtype": "float32", "shape": [1], "stride": [1], "offset": 2**45, "bytes": "AAAAAA=="},
     {"dtype": "float32", "shape": [1], "stride": [1, 1], "offset": 0, "bytes": "AAAAAA=="}],
)  # fmt: skip
def test_what_is_no_value_is_malformed(data: Any) -> None:
    with pytest.raises(Malformed):
        decode(data)


def test_a_nest_without_end_is_malformed() -> None:
    nest: Any = None
    for _ in range(200):
        nest = {"list": [nest]}
    with pytest.raises(Malformed):
        decode(nest)


def rubbish() -> Iterator[tuple[bytes, type[Exception]]]:
    yield b"x" * (MOST + 1), Malformed
    yield b'{"do":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n", Malformed
    yield b'{"int": ' + b"9" * 5000 + b"}\n", Malformed
    yield pickle.dumps({"do": "done"}) + b"\n", Malformed
    yield b"\xff" * 100 + b"\n", Malformed
    yield b"[]\n", Malformed
    yield b'{"do": "done"', Ended
    yield b"", Ended


@pytest.mark.parametrize(("sent", "error"), [*rubbish()], ids=lambda v: repr(v)[:9])
def test_what_is_no_message_is_one_error(sent: bytes, error: type[Exception]) -> None:
    here, there = socket.socketpair()
    with here, ThreadPoolExecutor() as pool:
        pool.submit(lambda: (there.sendall(sent), there.close()))
        with pytest.raises(error):
            Talk(here, lambda: True).receive()
        here.close()


def test_who_sends_a_byte_now_and_then_uses_up_all_patience() -> None:
    here, there = socket.socketpair()
    with here, there:
        looks = iter(range(5))
        with pytest.raises(TimeoutError):
            Talk(here, lambda: there.send(b" ") and next(looks, None) is not None).receive()


def test_the_tensors_of_a_call_come_as_they_lie_and_those_to_be_filled_without_bytes() -> None:
    tensors = [torch.arange(6)[::2], torch.empty(0, 3), torch.ones(2, 3).t(), torch.tensor(1.0)]
    for mine, theirs in zip(
        tensors, opened([encode_tensor(t, around=False) for t in tensors], ROOM), strict=True
    ):
        assert same(theirs, mine)
        assert theirs.is_contiguous() == mine.is_contiguous()
    blank = opened([form(t) for t in tensors], ROOM)
    assert [t.stride() for t in blank if t.numel()] == [t.stride() for t in tensors if t.numel()]


@pytest.mark.parametrize("describe", [form, lambda t: encode_tensor(t, around=False)])
def test_bytes_that_claim_to_be_more_are_no_call(describe) -> None:
    with pytest.raises(Malformed):
        opened([describe(torch.ones(1).expand(1 << 33))], ROOM)


def test_a_call_with_a_part_exchanged_is_malformed_or_harmless() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        rows = [encode_tensor(torch.arange(6.0), around=False), form(torch.ones(2, 2))]
        row = rng.choice(rows)
        odd = [-1, 99, "x", None, [], [2**60], [1, 2, 3], 1.5, {}, "int8"]
        row[rng.choice(list(row))] = rng.choice(odd)
        try:
            assert all(t.sum() is not None for t in opened(rows, ROOM))
        except Malformed:
            continue
